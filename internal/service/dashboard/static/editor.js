// The editor of traffic policies: numbers of lines, and the server's findings while one types. Without this, the form shows findings when it is sent.
"use strict";
(() => {
	for (const root of document.querySelectorAll("[data-editor]")) {
		const text = root.querySelector("textarea");
		const gutter = root.querySelector(".gutter");
		const form = text.form;
		const list = () => root.querySelector("#findings");
		const leastRows = 12;
		const mostRows = 5000;

		// number makes the editor as high as its text, with a number beside each line.
		function number() {
			const rows = Math.min(Math.max(text.value.split("\n").length + 1, leastRows), mostRows);
			const bad = new Set([...list().querySelectorAll("li[data-line]")].map((li) => Number(li.dataset.line)));
			while (gutter.children.length > rows) gutter.lastChild.remove();
			while (gutter.children.length < rows) {
				const line = document.createElement("span");
				line.textContent = String(gutter.children.length + 1);
				gutter.append(line, "\n");
			}
			[...gutter.children].forEach((line, i) => line.classList.toggle("marked", bad.has(i + 1)));
			text.rows = rows;
		}

		// check asks the server what is wrong with the text. The newest question wins.
		let asked = null;
		function check() {
			if (asked) asked.abort();
			const request = (asked = new XMLHttpRequest());
			request.open("POST", root.dataset.check);
			request.responseType = "document";
			request.timeout = 20000;
			request.setRequestHeader("Fairlead-Refresh", "1");
			request.onload = () => {
				asked = null;
				const fresh = request.response && request.response.getElementById("findings");
				if (request.status === 401) return show("You are signed out. Send the form as usual: you sign in, and what you typed is kept.");
				if (request.status !== 200 || !fresh) return show("The server could not check the text; it does so when the form is sent.");
				update(fresh);
			};
			request.onerror = request.ontimeout = () => show("The server does not answer; the text is checked when the form is sent.");
			const body = new URLSearchParams({ traffic_policy: text.value, id: root.dataset.id });
			for (const name of ["binding", "url", "form_secrets"]) {
				const input = form.elements[name];
				if (input) body.set(name, input.value);
			}
			request.send(body);
		}

		// update shows the findings of the server. The element that screen readers listen to stays.
		const status = list().querySelector("#findings-count");
		function update(fresh) {
			const summary = fresh.querySelector("#findings-count");
			if (status.textContent !== summary.textContent) status.textContent = summary.textContent;
			status.className = summary.className;
			list().querySelector("ol").replaceWith(document.importNode(fresh.querySelector("ol"), true));
			if (list().querySelector("li")) text.setAttribute("aria-invalid", "true");
			else text.removeAttribute("aria-invalid");
			number();
		}
		function show(problem) {
			status.textContent = problem;
			status.className = "hint";
		}

		let typed = 0;
		function later() {
			clearTimeout(typed);
			typed = setTimeout(check, 300);
		}
		text.addEventListener("input", () => {
			number();
			later();
		});
		for (const name of ["binding", "url"]) {
			if (form.elements[name]) form.elements[name].addEventListener("change", later);
		}

		// A new line is indented as the one before it.
		text.addEventListener("keydown", (event) => {
			if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
			const before = text.value.slice(0, text.selectionStart);
			const indent = /^( *)(- )?/.exec(before.slice(before.lastIndexOf("\n") + 1))[0].replace("-", " ");
			const wanted = before.endsWith(":") ? indent + "  " : indent;
			if (wanted && document.execCommand("insertText", false, "\n" + wanted)) event.preventDefault();
		});

		// A finding leads to its place.
		root.addEventListener("click", (event) => {
			const place = event.target.closest("#findings li[data-line] a");
			if (!place) return;
			event.preventDefault();
			const { line, column } = place.closest("li").dataset;
			const lines = text.value.split("\n");
			const row = Math.min(Number(line), lines.length) - 1;
			const characters = [...lines[row]].slice(0, Number(column) - 1).join("").length;
			const at = lines.slice(0, row).reduce((sum, one) => sum + one.length + 1, 0) + characters;
			text.focus();
			text.setSelectionRange(at, at);
			gutter.children[Math.min(row, gutter.children.length - 1)].scrollIntoView({ block: "center" });
		});
		number();
	}
})();
