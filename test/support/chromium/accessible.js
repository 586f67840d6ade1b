// What an automatic check can find: run in a page, it returns a list of sentences, empty when all is well. CheckTree adds what the browser's
// accessibility tree says.
(() => {
	const found = [];
	const name = (el) => {
		const text = (el.textContent || el.getAttribute("name") || "").trim().replace(/\s+/g, " ").slice(0, 40);
		return `<${el.localName}${el.id ? "#" + el.id : ""}${el.className && el.className.baseVal === undefined ? "." + el.className : ""}> “${text}”`;
	};
	const shown = (el) => el.checkVisibility({ visibilityProperty: true }) && !el.closest(".unseen") && el.getClientRects().length > 0;
	const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);

	// The document.
	if (!document.documentElement.lang) found.push("the page does not say its language");
	if (!document.title.trim()) found.push("the page has no title");
	const ids = new Set();
	for (const el of document.querySelectorAll("[id]")) {
		if (ids.has(el.id)) found.push(`two elements have the id ${el.id}`);
		ids.add(el.id);
	}
	for (const attribute of ["aria-labelledby", "aria-describedby", "for"]) {
		for (const el of document.querySelectorAll(`[${attribute}]`)) {
			if (el.localName === "dialog" && !el.open) continue;
			for (const id of el.getAttribute(attribute).split(/\s+/)) if (!ids.has(id)) found.push(`${name(el)}: ${attribute} names ${id}, which is not there`);
		}
	}
	for (const el of document.querySelectorAll("[tabindex]")) if (el.tabIndex > 0) found.push(`${name(el)} jumps the queue of the tab key`);

	// Landmarks and headings.
	if (all("main").length !== 1) found.push(`there are ${all("main").length} main landmarks`);
	const navs = all("nav").map((nav) => nav.getAttribute("aria-label") || "");
	if (navs.includes("")) found.push("a navigation has no name");
	if (new Set(navs).size !== navs.length) found.push(`two navigations have one name: ${navs}`);
	let level = 0;
	const headings = all("h1, h2, h3, h4, h5, h6").filter((h) => !h.closest("dialog"));
	if (headings.filter((h) => h.localName === "h1").length !== 1) found.push("there is not exactly one h1");
	for (const h of headings) {
		const next = Number(h.localName[1]);
		if (next > level + 1) found.push(`${name(h)} comes after level ${level}`);
		if (!h.textContent.trim()) found.push("a heading is empty");
		level = next;
	}
	const skip = document.querySelector("a.skip");
	if (!skip || !document.querySelector(skip.getAttribute("href"))) found.push("there is no link that skips to the content");

	// Controls.
	for (const el of all("input:not([type=hidden]), select, textarea")) {
		if (!el.labels || el.labels.length === 0) found.push(`${name(el)} has no label`);
	}
	for (const svg of document.querySelectorAll("svg")) if (svg.getAttribute("aria-hidden") !== "true") found.push("a picture is neither named nor hidden from those who do not see it");
	for (const el of all("a, button, input:not([type=hidden]), select, textarea, summary")) {
		const display = getComputedStyle(el).display;
		if (display === "inline" || el.closest(".skip, label.choice")) continue; // in a line of text
		const box = el.getBoundingClientRect();
		if (box.width < 24 || box.height < 24) found.push(`${name(el)} is ${Math.round(box.width)} by ${Math.round(box.height)} pixels`);
	}

	// Tables and times.
	for (const table of all("table")) {
		if (!table.caption || !table.caption.textContent.trim()) found.push(`${name(table)} has no caption`);
		for (const th of table.querySelectorAll("thead th")) {
			if (th.scope !== "col") found.push(`${name(th)} is no header of a column`);
			if (!th.textContent.trim()) found.push("a column has no name");
		}
		for (const row of table.querySelectorAll("tbody tr")) {
			if (row.querySelectorAll("th[scope=row]").length !== 1) found.push(`${name(row)} has no header`);
			if (row.cells.length !== table.tHead.rows[0].cells.length) found.push(`${name(row)} has ${row.cells.length} cells under ${table.tHead.rows[0].cells.length} headers`);
		}
	}
	for (const time of document.querySelectorAll("time")) if (!time.dateTime || !time.title) found.push(`${name(time)} does not say when exactly`);

	// Contrast: of each text with what lies behind it.
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (colour) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = colour;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const behind = (el) => {
		for (let at = el; at; at = at.parentElement) {
			const colour = rgba(getComputedStyle(at).backgroundColor);
			if (colour[3] === 255) return colour;
		}
		return [255, 255, 255, 255];
	};
	const light = ([r, g, b]) => {
		const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
		return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
	};
	const contrast = (a, b) => {
		const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
		return (high + 0.05) / (low + 0.05);
	};
	const modal = document.querySelector("dialog[open]");
	const walker = document.createTreeWalker(modal || document.body, NodeFilter.SHOW_TEXT);
	const seen = new Set();
	for (let node = walker.nextNode(); node; node = walker.nextNode()) {
		const el = node.parentElement;
		if (!node.data.trim() || seen.has(el) || !shown(el) || el.closest("option, :disabled, .skip")) continue;
		seen.add(el);
		const style = getComputedStyle(el);
		const size = parseFloat(style.fontSize);
		const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
		const is = contrast(rgba(style.color), behind(el));
		if (is < needed) found.push(`${name(el)} has a contrast of ${is.toFixed(2)}, not ${needed}`);
	}
	for (const el of all("input:not([type=hidden], [type=checkbox]), select, textarea")) {
		const is = contrast(rgba(getComputedStyle(el).borderTopColor), behind(el.parentElement));
		if (is < 3) found.push(`the border of ${name(el)} has a contrast of ${is.toFixed(2)}`);
		const hint = getComputedStyle(el, "::placeholder");
		if (el.placeholder && contrast(rgba(hint.color), behind(el)) < 4.5) found.push(`the placeholder of ${name(el)} is faint`);
	}
	return [...new Set(found)];
})()
