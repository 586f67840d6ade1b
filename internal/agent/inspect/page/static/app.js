// The agent's inspector. Every page can be read without this; it keeps the list and an open request up to date, filters while one types, and adds keys.
"use strict";
(() => {
	const byId = (id) => document.getElementById(id);
	const page = document.body.dataset.page;
	let going = false; // the page is given up for another one
	window.addEventListener("pagehide", () => {
		going = true;
		leave();
	});
	window.addEventListener("pageshow", (event) => {
		if (!event.persisted) return;
		going = false;
		follow();
	});

	// The stream: of the list, what has changed in it; of a request, that it has changed.
	let stream = null;
	let again = 0;
	let query = location.search;
	function follow() {
		if (document.body.dataset.live === undefined || stream || document.hidden || going || !window.EventSource) return;
		clearTimeout(again);
		stream = new EventSource(page === "list" ? "/live" + query : document.body.dataset.live);
		stream.addEventListener("open", () => stale(false));
		stream.addEventListener("update", (event) => take(JSON.parse(event.data)));
		stream.addEventListener("change", () => later());
		stream.addEventListener("done", () => {
			delete document.body.dataset.live;
			leave();
			later();
		});
		stream.addEventListener("error", () => {
			if (going) return;
			stale(true);
			if (stream && stream.readyState !== EventSource.CLOSED) return;
			leave();
			again = setTimeout(follow, 5000);
		});
	}
	function leave() {
		if (stream) stream.close();
		stream = null;
		delete document.body.dataset.following;
	}
	document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));

	function stale(is) {
		let note = document.querySelector(".stale");
		if (!is) return note && note.remove();
		if (note) return;
		note = document.createElement("p");
		note.className = "stale";
		note.setAttribute("role", "status");
		document.body.append(note);
		note.textContent = "The agent does not answer; what you see may be old. Trying again.";
	}

	// The list. What comes between two frames, or during a pause, is one change of the page, and the page has no more rows than the last update names.
	const body = page === "list" ? byId("requests").tBodies[0] : null;
	const blank = page === "list" ? byId("row").content.querySelector("tr") : null;
	const shown = new Map(); // rows of the page by id
	let latest = null; // the last update that is not shown
	const changed = new Map(); // rows of updates that are not shown, by id
	let paused = false;
	let drawing = false;
	if (body) for (const tr of body.rows) shown.set(tr.dataset.key, tr);

	function take(update) {
		for (const row of update.rows) changed.set(row.id, row);
		latest = update;
		if (changed.size > update.order.length) {
			const wanted = new Set(update.order);
			for (const id of changed.keys()) if (!wanted.has(id)) changed.delete(id);
		}
		document.body.dataset.following = "";
		if (paused) return waiting();
		if (drawing) return;
		drawing = true;
		requestAnimationFrame(() => {
			drawing = false;
			if (!paused) draw();
		});
	}

	function fill(tr, row) {
		tr.dataset.key = row.id;
		for (const el of tr.querySelectorAll("[data-field]")) {
			const name = el.dataset.field;
			if (name === "path") el.setAttribute("href", row.path);
			else if (name === "replayed") el.hidden = !row.replayed;
			else if (el.textContent !== row[name]) el.textContent = row[name];
			if (name === "time") {
				el.dateTime = row.datetime;
				el.title = row.exact;
			} else if (name === "status") {
				el.className = "status " + row.class;
				el.title = row.words;
			}
		}
	}

	function draw() {
		if (!latest || !body) return;
		const { order, count, dropped } = latest;
		const wanted = new Set(order);
		const focused = document.activeElement && document.activeElement.closest("tr");
		const free = [];
		for (const [id, tr] of shown) {
			if (wanted.has(id)) continue;
			shown.delete(id);
			if (tr === focused) byId("main").focus({ preventScroll: true });
			tr.remove();
			free.push(tr);
		}
		let at = body.firstElementChild;
		let fresh = 0;
		for (const id of order) {
			let tr = shown.get(id);
			const row = changed.get(id);
			if (!tr) {
				if (!row) continue; // the next update has it
				tr = free.pop() || document.importNode(blank, true);
				shown.set(id, tr);
				fill(tr, row);
				fresh++;
			} else if (row) fill(tr, row);
			if (tr === at) at = at.nextElementSibling;
			else body.insertBefore(tr, at);
		}
		changed.clear();
		latest = null;
		text("count", count);
		text("dropped", dropped);
		text("waiting", "");
		byId("requests").hidden = order.length === 0;
		byId("empty").hidden = order.length > 0;
		announce(fresh);
	}

	function text(id, value) {
		const el = byId(id);
		if (el.textContent !== value) el.textContent = value;
	}

	function waiting() {
		const fresh = latest.order.filter((id) => !shown.has(id)).length;
		text("waiting", fresh ? `Paused; ${fresh} new` : "Paused");
	}

	// Screen readers are told of new requests at most every ten seconds.
	let untold = 0;
	let telling = 0;
	function announce(fresh) {
		untold += fresh;
		if (!untold || telling) return;
		telling = setTimeout(() => {
			telling = 0;
			text("announced", untold === 1 ? "1 new request" : `${untold} new requests`);
			untold = 0;
		}, 10000);
	}

	const pause = byId("pause");
	if (pause) {
		pause.hidden = false;
		pause.addEventListener("click", () => {
			paused = !paused;
			pause.setAttribute("aria-pressed", String(paused));
			text("waiting", paused ? "Paused" : "");
			if (!paused) draw();
		});
	}

	// Filter while one types.
	for (const form of document.querySelectorAll("form[data-search]")) {
		let typed = 0;
		const search = () => {
			clearTimeout(typed);
			const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim() !== ""));
			const given = asked.toString();
			query = given ? "?" + given : "";
			history.replaceState(null, "", "/" + query);
			for (const link of document.querySelectorAll("[data-har]")) link.setAttribute(link.localName === "form" ? "action" : "href", "/har" + query);
			for (const note of document.querySelectorAll("[data-empty]")) note.hidden = (note.dataset.empty === "filtered") !== (query !== "");
			const all = byId("all");
			if (all) all.remove(); // it keeps the filters before
			leave();
			follow();
		};
		form.addEventListener("input", () => {
			clearTimeout(typed);
			typed = setTimeout(search, 150);
		});
		form.addEventListener("submit", (event) => {
			event.preventDefault();
			search();
		});
	}

	// A request that is still going on: its page is read again, at most once a second.
	let due = 0;
	let lastRead = Date.now();
	function later() {
		if (due || page !== "detail") return;
		due = setTimeout(() => {
			due = 0;
			lastRead = Date.now();
			const request = new XMLHttpRequest();
			request.open("GET", location.pathname);
			request.responseType = "document"; // scripts in it do not run
			request.timeout = 20000;
			request.onload = () => {
				const fresh = request.status === 200 && request.response && request.response.getElementById("live");
				if (!fresh || going) return;
				morph(byId("live"), fresh);
				const actions = request.response.querySelector(".head .page-actions");
				if (actions) morph(document.querySelector(".head .page-actions"), actions);
			};
			request.send();
		}, Math.max(0, lastRead + 1000 - Date.now()));
	}

	// morph makes one node like another and keeps what is the same, so that focus, selection and scroll stay.
	function morph(from, to) {
		if (from.nodeType === Node.TEXT_NODE) {
			if (from.data !== to.data) from.data = to.data;
			return;
		}
		for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
		for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
		let at = from.firstChild;
		for (const child of [...to.childNodes]) {
			if (at && at.nodeType === child.nodeType && at.nodeName === child.nodeName) {
				morph(at, child);
				at = at.nextSibling;
			} else {
				from.insertBefore(document.importNode(child, true), at);
			}
		}
		while (at) {
			const gone = at;
			at = at.nextSibling;
			gone.remove();
		}
	}

	// Keys. They can be turned off, since voice control types letters.
	const choice = byId("keys");
	byId("keys-choice").hidden = false;
	try {
		choice.checked = localStorage.getItem("keys") !== "off";
	} catch {
		// storage is turned off; the keys are on
	}
	choice.addEventListener("change", () => {
		try {
			localStorage.setItem("keys", choice.checked ? "on" : "off");
		} catch {
			// storage is turned off; the choice is this page's
		}
	});
	function move(by) {
		if (!body || !body.rows.length) return;
		const now = document.activeElement.closest("#requests tbody tr");
		const rows = [...body.rows];
		const at = now ? rows.indexOf(now) + by : by > 0 ? 0 : rows.length - 1;
		const link = rows[Math.min(Math.max(at, 0), rows.length - 1)].querySelector("a");
		link.focus();
		link.scrollIntoView({ block: "nearest" });
	}
	document.addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey || !choice.checked) return;
		const typing = event.target.closest("input:not([type=checkbox]), select, textarea");
		if (typing) {
			if (event.key === "Escape" && page === "list") typing.blur();
			return;
		}
		const click = (selector) => {
			const el = document.querySelector(selector);
			if (el) el.click();
			return !!el;
		};
		const done = {
			j: () => (move(1), true),
			k: () => (move(-1), true),
			"/": () => byId("text") && (byId("text").focus(), true),
			p: () => click("#pause"),
			e: () => click("[data-edit]"),
			u: () => click("[data-back]"),
		}[event.key];
		if (done && done()) event.preventDefault();
	});

	// Copying needs a script, so its button appears with it.
	for (const button of document.querySelectorAll("button[data-copy]")) {
		if (!navigator.clipboard) break;
		button.hidden = false;
		button.addEventListener("click", async () => {
			try {
				await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
				button.textContent = "Copied";
			} catch {
				button.textContent = "Not copied";
			}
			setTimeout(() => (button.textContent = "Copy"), 2000);
		});
	}

	follow();
})();
