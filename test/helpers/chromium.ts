/** A browser for tests, where one is installed. */

import { existsSync } from 'node:fs'
import type { Browser } from 'playwright-core'

/** The one without windows first: the same pages take it a third less processor time. */
const PLACES = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'].map(
  name => `/usr/bin/${name}`,
)

/** Full path of a Chromium, or why there is none. */
export function findChromium(): { path: string } | { reason: string } {
  const given = process.env.FNGW_TEST_CHROMIUM
  const path = [...(given === undefined ? [] : [given]), ...PLACES].find(place => existsSync(place))
  return path === undefined
    ? { reason: 'no Chromium is installed: apt-get install chromium-headless-shell, or set FNGW_TEST_CHROMIUM' }
    : { path }
}

export async function launchChromium(path: string): Promise<Browser> {
  const { chromium } = await import('playwright-core')
  // Its own sandbox cannot be made by root, as in containers.
  return chromium.launch({
    executablePath: path,
    timeout: 120_000,
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  })
}
