/** A browser for tests, where one is installed, and what a page loads, for tests without one. */

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

/** Addresses in the text of a page (`src`, `href`, `content`), or of a module that imports others by a relative path. */
const LINK = /(?:href|src|content)="([^"?#]+\.\w+)"|["'](\.\/[\w-]+\.js)["']/g

/** Fetches a page, the files that it names, and the modules that those import. @returns each address with its status */
export async function fetchPage(address: string): Promise<Map<string, number>> {
  const statuses = new Map<string, number>()
  const queue = [address]
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    if (statuses.has(next)) continue
    const response = await fetch(next)
    statuses.set(next, response.status)
    const text = await response.text()
    if (next !== address && !/javascript/.test(response.headers.get('content-type') ?? '')) continue
    // Scripts have strings that look like attributes.
    for (const [, attribute, module] of text.matchAll(LINK)) {
      const link = next === address ? attribute : module
      if (link !== undefined) queue.push(new URL(link, next).href)
    }
  }
  return statuses
}
