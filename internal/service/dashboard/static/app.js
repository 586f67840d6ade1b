// Fairlead's dashboard. Every page works without this; it shows confirmations as dialogs, searches while one types, and keeps what is shown up to date.
"use strict";
(() => {
	const dialog = document.getElementById("dialog");
	const region = () => document.getElementById("live");

	// read fetches a page as a document. Scripts in it do not run.
	function read(url, signal) {
		return new Promise((resolve, reject) => {
			const request = new XMLHttpRequest();
			request.open("GET", url);
			request.responseType = "document";
			request.timeout = 20000;
			request.setRequestHeader("Fairlead-Refresh", "1");
			request.onload = () => resolve({ status: request.status, page: request.response });
			request.onerror = request.ontimeout = () => reject(new Error("no answer"));
			request.onabort = () => reject(new DOMException("aborted", "AbortError"));
			if (signal) signal.addEventListener("abort", () => request.abort());
			request.send();
		});
	}

	// morph makes one node like another and keeps what is the same, so that focus, selection and scroll stay. Rows are known by data-key.
	const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
	const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

	function morph(from, to) {
		if (from.nodeType === Node.TEXT_NODE) {
			if (from.data !== to.data) from.data = to.data;
			return;
		}
		for (const { name } of [...from.attributes]) {
			if (!to.hasAttribute(name) && !["aria-busy", "aria-haspopup", "open"].includes(name)) from.removeAttribute(name);
		}
		for (const { name, value } of to.attributes) {
			if (name === "hidden" && from.hasAttribute("data-copy")) continue;
			if (from.getAttribute(name) !== value) from.setAttribute(name, value);
		}
		const wanted = new Set([...to.childNodes].map(keyOf).filter(Boolean));
		const have = new Map([...from.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
		let at = from.firstChild;
		const drop = () => {
			const gone = at;
			at = at.nextSibling;
			gone.remove();
		};
		for (const child of [...to.childNodes]) {
			while (at && keyOf(at) && !wanted.has(keyOf(at))) drop();
			let match = keyOf(child) ? have.get(keyOf(child)) : at && alike(at, child) ? at : null;
			if (match && !alike(match, child)) match = null;
			if (!match) {
				from.insertBefore(document.importNode(child, true), at);
				continue;
			}
			// What lies between goes, rather than that the row is moved: a row that is moved loses the focus.
			while (at && at !== match && !(keyOf(at) && wanted.has(keyOf(at)))) drop();
			if (match !== at) from.insertBefore(match, at);
			morph(match, child);
			at = match.nextSibling;
		}
		while (at) drop();
	}

	// refresh reads the page that is shown again and shows what has changed. The newest wins.
	let reading = null;
	let lastRead = 0;
	async function refresh(busy) {
		if (!region() || going) return;
		if (reading) reading.abort();
		const mine = (reading = new AbortController());
		if (busy) region().setAttribute("aria-busy", "true");
		try {
			const answer = await read(location.href, mine.signal);
			if (answer.status === 401 || answer.status === 403 || answer.status === 404) return reload();
			const fresh = answer.page && answer.page.getElementById("live");
			if (answer.status !== 200 || !fresh) throw new Error("no page");
			const held = region().contains(document.activeElement);
			morph(region(), fresh);
			if (held && document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
			reveal();
			stale(false);
		} catch (error) {
			if (error.name === "AbortError") return;
			stale(true);
			later(5000);
		} finally {
			if (reading === mine) {
				reading = null;
				region().removeAttribute("aria-busy");
			}
			lastRead = Date.now();
		}
	}

	// later refreshes soon, and not more than once a second however much changes.
	let due = 0;
	let dueAt = Infinity;
	function later(delay) {
		const at = Math.max(Date.now() + delay, lastRead + 1000);
		if (at >= dueAt) return;
		clearTimeout(due);
		dueAt = at;
		due = setTimeout(() => {
			dueAt = Infinity;
			if (!document.hidden) refresh(false);
		}, at - Date.now());
	}

	function stale(is) {
		let note = document.querySelector(".stale");
		if (!is) return note && note.remove();
		if (note) return;
		note = document.createElement("p");
		note.className = "stale";
		note.setAttribute("role", "status");
		document.body.append(note);
		note.textContent = "The server does not answer; what you see may be old. Trying again.";
	}

	// Live updates: the server says that something has changed, and the page is read again. It says every two seconds that it is there;
	// whether a stream that has broken means an outage, the page that is read again tells.
	let stream = null;
	let again = 0;
	let silent = 0;
	let heard = false;
	function follow() {
		const of = document.body.dataset.live;
		if (of === undefined || stream || document.hidden || going || !window.EventSource) return;
		clearTimeout(again);
		stream = new EventSource("/ui/live?of=" + encodeURIComponent(of));
		const on = (event, act) => stream.addEventListener(event, () => (listen(), act()));
		on("hello", () => {
			if (heard) later(0); // something may have been missed
			heard = true;
			document.body.dataset.following = "";
		});
		on("alive", () => {});
		on("change", () => later(0));
		on("beat", () => "poll" in document.body.dataset && later(0));
		on("end", reload);
		stream.addEventListener("error", () => {
			later(0);
			if (stream && stream.readyState !== EventSource.CLOSED) return;
			leave();
			again = setTimeout(follow, 15000);
		});
		listen();
	}
	// listen gives the server time until its next event; a process that is frozen, or cut off, closes nothing.
	function listen() {
		clearTimeout(silent);
		silent = setTimeout(() => {
			stale(true);
			leave();
			follow();
		}, 4500);
	}
	function leave() {
		if (stream) stream.close();
		stream = null;
		clearTimeout(silent);
		delete document.body.dataset.following;
	}
	// away gives up the page for another one.
	let going = false;
	function away() {
		going = true;
		leave();
		clearTimeout(again);
		clearTimeout(due);
		if (reading) reading.abort();
	}
	function reload() {
		if (!going) location.reload();
	}
	document.addEventListener("visibilitychange", () => {
		if (going) return;
		if (document.hidden) return leave();
		if (document.body.dataset.live !== undefined) later(0);
		follow();
	});
	window.addEventListener("pagehide", away);

	// Search while one types.
	for (const form of document.querySelectorAll("form[data-search]")) {
		let typed = 0;
		const search = () => {
			clearTimeout(typed);
			const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim() !== ""));
			const query = asked.toString();
			history.replaceState(null, "", form.getAttribute("action") + (query ? "?" + query : ""));
			refresh(true);
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

	// Confirmations are pages; here their form is shown as a dialog.
	async function ask(link) {
		link.setAttribute("aria-busy", "true");
		try {
			const answer = await read(link.href);
			const form = answer.page && answer.page.querySelector("form[data-confirm]");
			if (answer.status !== 200 || !form) throw new Error("no question");
			const shown = document.importNode(form, true);
			const title = document.createElement("h2");
			const given = shown.querySelector("h1");
			title.id = given.id;
			title.textContent = given.textContent;
			given.replaceWith(title);
			dialog.replaceChildren(shown);
			dialog.showModal();
			shown.querySelector("[data-cancel]").focus();
		} catch {
			location.assign(link.href);
		} finally {
			link.removeAttribute("aria-busy");
		}
	}
	document.addEventListener("click", (event) => {
		const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
		const link = event.target.closest("a[data-dialog]");
		if (link && plain && dialog.showModal) {
			event.preventDefault();
			ask(link);
		} else if (event.target.closest("dialog [data-cancel]") && plain) {
			event.preventDefault();
			dialog.close();
		} else if (event.target === dialog) {
			dialog.close(); // the click was on what lies behind it
		}
	});
	dialog.addEventListener("close", () => dialog.replaceChildren());

	// A form is sent once, and nothing reads the page again while its answer is on the way.
	document.addEventListener("submit", (event) => {
		if (!event.defaultPrevented) away();
		const busy = event.target.getAttribute("data-busy");
		const button = event.submitter;
		if (!busy || !button || event.defaultPrevented) return;
		setTimeout(() => {
			button.disabled = true;
			button.textContent = busy + "…";
		});
	});

	// What is sent from the form of an editor waits in this tab, without new secrets, until another page shows that it was accepted or given up.
	function withoutSecrets(text, names) {
		const field = new RegExp(`^(.*?(?:${names})[\\w.-]*["']?\\s*:)(.*)$`, "i");
		const isMark = (value) => /^[\s"',-]*(redacted:[0-9a-f]{8})?["',\s]*$/.test(value);
		let depth = Infinity; // indent of the secret that goes on in the next lines
		return text.split(/\r?\n/).map((line) => {
			const indent = line.search(/\S|$/);
			if (!line.trim() || indent > depth || (indent === depth && line[indent] === "-")) return isMark(line) ? line : /^\s*(- )?/.exec(line)[0];
			const found = field.exec(line);
			depth = found ? line.search(/[^\s-]/) : Infinity;
			return found && !isMark(found[2]) ? found[1] : line;
		}).join("\n");
	}
	function storeDraft(draft) {
		try {
			sessionStorage.setItem("draft", JSON.stringify(draft));
		} catch {} // it is too large, or the browser blocks storage
	}
	function storedDraft() {
		try {
			return JSON.parse(sessionStorage.getItem("draft"));
		} catch {
			return null;
		}
	}
	document.addEventListener("submit", ({ target: form }) => {
		if (!form.matches("form[data-secrets]")) return;
		const typed = [...new FormData(form)].filter(([name]) => name !== "form_secrets");
		for (const pair of typed) if (pair[0] === "traffic_policy") pair[1] = withoutSecrets(pair[1], form.dataset.secrets);
		storeDraft({ path: location.pathname, typed });
	});
	const draft = storedDraft();
	const signIn = document.querySelector(".sign-in form");
	if (draft && signIn && !document.querySelector(".notice") && ["", draft.path].includes(signIn.elements.return.value)) {
		signIn.elements.return.value = draft.path;
		signIn.querySelector(".kept").hidden = false;
		storeDraft({ ...draft, waits: true });
	} else if (draft && draft.path === location.pathname && draft.waits) {
		storeDraft({ ...draft, waits: false });
		const form = document.createElement("form");
		Object.assign(form, { method: "post", action: draft.path });
		for (const [name, value] of [...draft.typed, ["step", "edit"], ["form_restored", "true"]]) {
			form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
		}
		document.body.append(form);
		form.submit();
	} else if (draft && draft.path !== location.pathname) sessionStorage.removeItem("draft");

	// Copying needs a script, so its buttons appear with it.
	function reveal() {
		if (!navigator.clipboard) return;
		for (const button of document.querySelectorAll("button[data-copy][hidden]")) button.hidden = false;
	}
	document.addEventListener("click", async (event) => {
		const button = event.target.closest("button[data-copy]");
		if (!button) return;
		const label = button.firstChild;
		try {
			await navigator.clipboard.writeText(button.dataset.copy);
			label.data = "Copied";
		} catch {
			label.data = "Not copied";
		}
		setTimeout(() => (label.data = "Copy"), 2000);
	});

	// Times go on, in the words of the server.
	function relative(at) {
		const passed = Date.now() - at.getTime();
		const minutes = Math.floor(Math.abs(passed) / 60000);
		const say = (n, unit) => (passed < 0 ? `in ${n} ${unit}` : `${n} ${unit} ago`);
		if (minutes < 1) return "just now";
		if (minutes < 60) return say(minutes, "min");
		if (minutes < 48 * 60) return say(Math.floor(minutes / 60), "h");
		if (minutes < 60 * 24 * 60) return say(Math.floor(minutes / (24 * 60)), "days");
		return null;
	}
	setInterval(() => {
		if (document.hidden) return;
		for (const time of document.querySelectorAll("time[datetime]")) {
			const text = relative(new Date(time.dateTime));
			if (text && time.textContent !== text) time.textContent = text;
		}
	}, 20000);

	// A link from elsewhere comes without the cookie, which is strict: who is signed in goes on to the page.
	const back = document.body.dataset.return;
	if (back) {
		read(back).then((answer) => {
			if (answer.status === 200) location.replace(back);
		}, () => {});
	}

	reveal();
	follow();
})();
