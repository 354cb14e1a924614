// The report's figures and tables beside the parts of the page that show the same.

const FILES = JSON.parse(byId("files").textContent);

const FORMS = { tex: "LaTeX", md: "Markdown" };

/** "average-pw-js: PDF SVG", each a link. */
function fileLinks(name) {
  const links = FILES[name].map((path) => {
    const form = path.split(".").at(-1);
    return el("a", { href: path.split("/").map(encodeURIComponent).join("/") }, FORMS[form] ?? form.toUpperCase());
  });
  return el("span", {}, `${name}: `, ...links.flatMap((link, i) => (i ? [" ", link] : [link])));
}

function setUpLinks() {
  const names = Object.keys(FILES);
  for (const place of document.querySelectorAll(".files")) {
    // A figure per method has the method's name after its own: confusion-er.
    const here = place.dataset.files.split(" ").flatMap((word) => names.filter((name) => name === word || name.startsWith(`${word}-`)));
    place.hidden = !here.length;
    place.replaceChildren(...here.map(fileLinks));
  }
  byId("all-files").hidden = !names.length;
  byId("file-list").replaceChildren(...names.map((name) => el("li", {}, fileLinks(name))));
}
