// Runs before the first paint: what cannot wait for the modules.
(() => {
  try {
    const theme = localStorage.getItem("taskharbor-theme");
    if (theme) document.documentElement.dataset.theme = theme;
  } catch {
    // A browser that keeps nothing follows the system.
  }
  // A system locale such as `en-US@posix` is no language tag, and uPlot would fail as it loads.
  try {
    new Intl.NumberFormat(navigator.language);
  } catch {
    Object.defineProperty(navigator, "language", { value: "en-US" });
  }
})();
