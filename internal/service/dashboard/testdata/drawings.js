// What an automatic check can find in drawings: labels that overlap or lie outside, lines without a shape or a colour that can be seen.
(() => {
	const found = [];
	const parts = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
	const light = (colour) => {
		const [r, g, b] = parts(colour).map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = light(getComputedStyle(document.body).backgroundColor);
	const contrast = (colour) => (Math.max(ground, light(colour)) + 0.05) / (Math.min(ground, light(colour)) + 0.05);
	for (const svg of document.querySelectorAll("svg.chart")) {
		const section = svg.closest("section");
		const title = section.querySelector("h2").textContent;
		const box = section.getBoundingClientRect();
		const plot = svg.querySelector("svg.plot").getBoundingClientRect();
		const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect(), getComputedStyle(text)]);
		if (texts.length < 5) found.push(`${title}: only ${texts.length} labels`);
		texts.forEach(([a, at, style], i) => {
			if (at.left < box.left - 1 || at.right > box.right + 1) found.push(`${title}: the label ${a} lies outside`);
			if (parseFloat(style.fontSize) < 11 || at.height < 10) found.push(`${title}: the label ${a} is small`);
			if (contrast(style.fill) < 4.5) found.push(`${title}: the label ${a} is faint`);
			for (const [b, of] of texts.slice(i + 1)) {
				if (at.left < of.right && of.left < at.right && at.top < of.bottom - 1 && of.top < at.bottom - 1) found.push(`${title}: the labels ${a} and ${b} overlap`);
			}
		});
		const looks = new Set();
		for (const line of svg.querySelectorAll("path.line")) {
			const style = getComputedStyle(line);
			const at = line.getBoundingClientRect();
			if (contrast(style.stroke) < 3) found.push(`${title}: a line has a contrast of ${contrast(style.stroke).toFixed(2)}`);
			if (style.vectorEffect !== "non-scaling-stroke") found.push(`${title}: lines are stretched`);
			if (at.width > 0 && (at.top < plot.top - 2 || at.bottom > plot.bottom + 2 || at.left < plot.left - 2 || at.right > plot.right + 2)) found.push(`${title}: a line lies outside`);
			looks.add(style.stroke + style.strokeDasharray);
		}
		if (looks.size !== svg.querySelectorAll("path.line").length) found.push(`${title}: two lines look alike`);
		if (!section.querySelector("details table tbody tr")) found.push(`${title}: there is no table behind it`);
	}
	for (const arrow of document.querySelectorAll(".arrow")) {
		if (contrast(getComputedStyle(arrow.querySelector("svg")).stroke) < 3) found.push(`the arrow ${arrow.textContent} is faint`);
		if (arrow.classList.contains("broken") !== (arrow.querySelector(".cross") !== null)) found.push(`the arrow ${arrow.textContent} differs by its colour alone`);
	}
	return [...new Set(found)];
})()
