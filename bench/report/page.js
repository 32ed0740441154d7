// Draws each plot where its figure is. Colours are the style sheet's, so a change of scheme needs nothing from here.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const options = { mode: "vega-lite", renderer: "svg", actions: false, config: read("config"), tooltip: { theme: "page" } };
for (const plot of document.querySelectorAll(".plot")) {
  vegaEmbed(plot, read(plot.dataset.spec), options).then(
    () => plot.setAttribute("data-drawn", ""),
    (error) => {
      plot.textContent = "This plot could not be drawn; its figures are in the table below.";
      console.error(plot.dataset.spec, error);
    },
  );
}
