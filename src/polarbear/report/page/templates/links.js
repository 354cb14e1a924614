// The report's figures and tables beside the parts of the page that show the same.

const FILES = JSON.parse(byId("files").textContent);

/** "average-pw-js: PDF SVG", each a link; nothing where there is no such file. */
function fileLinks(name) {
  const links = FILES[name].map((path) => el("a", { href: path.split("/").map(encodeURIComponent).join("/") }, path.split(".").at(-1).toUpperCase()));
  return el("span", {}, `${name}: `, ...links.flatMap((link, i) => (i ? [" ", link] : [link])));
}

function setUpLinks() {
  const names = Object.keys(FILES);
  for (const place of document.querySelectorAll(".files")) {
    // A figure with a drawing per method has one file by its own name, others by longer ones.
    const here = place.dataset.files.split(" ").filter((name) => FILES[name]);
    place.hidden = !here.length;
    place.replaceChildren(...here.map(fileLinks));
  }
  byId("all-files").hidden = !names.length;
  byId("file-list").replaceChildren(...names.map((name) => el("li", {}, fileLinks(name))));
}
