/** Runs before the first paint: puts the theme on the page, so that it does not change colour while it loads. Owner: page console/console. */

import { startTheme } from './theme.ts'

startTheme()
