/** Runs before the first paint: puts the chosen theme on the page, so that it does not change colour while it loads. Owner: page console/console. */

const theme = localStorage.getItem('fngw.theme')
if (theme === 'light' || theme === 'dark' || theme === 'contrast') document.documentElement.dataset.theme = theme
