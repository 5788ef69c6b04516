/** A real gateway with the console on, and a browser page on it that fails the test for every error in it. */

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import tap, { type Test } from 'tap'
import { createGateway, type Gateway, type GatewayOptions } from '../../lib/index.ts'
import { findChromium, launchChromium } from './chromium.ts'
import { makeTree, type Tree, type TreeEntry } from './tree.ts'

let isBuilt = false

/** Builds the console from its sources where they are newer than the last build. */
export function buildConsole(): void {
  if (isBuilt) return
  const script = fileURLToPath(new URL('../../build/console.mjs', import.meta.url))
  execFileSync(process.execPath, [script, '--if-needed'], { stdio: ['ignore', 'inherit', 'inherit'] })
  isBuilt = true
}

export interface ConsoleBed {
  tree: Tree
  gateway: Gateway
  /** `http://127.0.0.1:port` */
  url: string
}

/** Starts a gateway on a free port, with the console on and edits allowed. */
export async function makeConsoleBed(
  t: Test,
  entries: Record<string, TreeEntry>,
  options: GatewayOptions = {},
  port = 0,
): Promise<ConsoleBed> {
  buildConsole()
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: ['lua', 'node'],
    uiEnabled: true,
    consoleWriteEnabled: true,
    ...options,
  })
  t.teardown(() => gateway.close())
  const { url } = await gateway.listen({ port })
  return { tree, gateway, url }
}

const found = findChromium()
/** Why tests of pages are skipped; false when they are not. */
export const noBrowser: string | false = 'reason' in found ? found.reason : false

export interface PageOptions extends BrowserContextOptions {
  /** Errors that the page may have: browsers log each answer that is no success. */
  allowed?: readonly RegExp[]
}

let browser: Promise<Browser> | null = null

/** One browser for the whole test file. */
function startBrowser(path: string): Promise<Browser> {
  if (browser === null) {
    const started = launchChromium(path)
    tap.teardown(async () => (await started).close())
    browser = started
  }
  return browser
}

/** Opens an address in a context that shares nothing with another. Errors of scripts, of the policy and in the browser's log fail the test. */
export async function withPage(
  t: Test,
  url: string,
  run: (page: Page) => Promise<void>,
  options: PageOptions = {},
): Promise<void> {
  if ('reason' in found) throw new Error(found.reason)
  const { allowed = [], ...contextOptions } = options
  const browser = await startBrowser(found.path)
  const problems: string[] = []
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...contextOptions })
  try {
    const page = await context.newPage()
    page.on('pageerror', error => problems.push(`${error.message}\n${error.stack ?? ''}`))
    page.on('console', message => {
      if (message.type() === 'error' || message.type() === 'warning')
        problems.push(`${message.text()} ${message.location().url}`.trim())
    })
    page.setDefaultTimeout(60_000)
    await page.goto(url)
    await run(page)
  } finally {
    await context.close()
    t.same(
      problems.filter(text => !allowed.some(pattern => pattern.test(text))),
      [],
      'no error on the page',
    )
  }
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

const WCAG = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']

/** Breaches of WCAG 2.2 A and AA that axe finds, a line each. @param rules - names of the only rules to look at; null for all */
async function findBreaches(page: Page, rules: readonly string[] | null = null): Promise<string[]> {
  // By the debugger: the page's own policy refuses scripts of others.
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(AXE)
  return page.evaluate(
    async runOnly => {
      const { axe } = globalThis as unknown as {
        axe: {
          run: (
            options: object,
          ) => Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }>
        }
      }
      // What is not read is not made: selectors of every element that is well took half of the time.
      const { violations } = await axe.run({ runOnly, resultTypes: ['violations'], selectors: false })
      return violations.flatMap(({ id, nodes }) =>
        nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
      )
    },
    rules === null ? { type: 'tag', values: WCAG } : { type: 'rule', values: [...rules] },
  )
}

/** Texts that are hard to read in the theme for high contrast. */
async function findFaint(page: Page): Promise<string[]> {
  await page.evaluate("document.documentElement.dataset.theme = 'contrast'")
  try {
    return await findBreaches(page, ['color-contrast'])
  } finally {
    await page.evaluate("document.documentElement.dataset.theme = 'light'")
  }
}

/** True when the page is wider than the window. */
export function isScrolledSideways(page: Page): Promise<boolean> {
  return page.evaluate(() => {
    const { document } = globalThis as unknown as {
      document: { documentElement: { scrollWidth: number; clientWidth: number } }
    }
    return document.documentElement.scrollWidth > document.documentElement.clientWidth
  })
}

/** Resizes the window and waits until tables and charts have drawn themselves for it, which they do in the next frame. */
export async function resizeWindow(page: Page, size: { width: number; height: number }): Promise<void> {
  await page.setViewportSize(size)
  await page.evaluate(`new Promise(done => {
    const look = () =>
      requestAnimationFrame(innerWidth === ${size.width} ? () => requestAnimationFrame(() => done()) : look)
    look()
  })`)
}

/** Names of the tables that are wider than their box or cut a button off. */
function findCutTables(page: Page): Promise<string[]> {
  return page.evaluate(`[...document.querySelectorAll('.table')]
    .filter(box => [box, ...box.querySelectorAll('td:has(button)')].some(one => one.scrollWidth > one.clientWidth))
    .map(box => box.getAttribute('aria-label'))`)
}

/** Between a phone and a large screen a table leaves out columns one by one. */
const TABLE_WIDTHS = [1440, 1024, 768, 721]

const LOOKS = [
  ['light', { width: 1280, height: 800 }, 'light'],
  ['dark', { width: 1280, height: 800 }, 'dark'],
  ['phone', { width: 390, height: 844 }, 'light'],
] as const

/** The folder that pictures go to; without it none are taken. */
const SHOTS = process.env.FN_TEST_SHOTS

/**
 * Looks at the page in light, in dark and at the width of a phone: no breach of WCAG, nothing to scroll sideways, also in tables;
 * and at the contrast of the theme that has most of it.
 */
export async function checkLooks(t: Test, page: Page, name: string): Promise<void> {
  const before = page.viewportSize()
  for (const [look, size, colorScheme] of LOOKS) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await resizeWindow(page, size)
    t.same(await findBreaches(page), [], `${name}, ${look}: WCAG`)
    t.notOk(await isScrolledSideways(page), `${name}, ${look}: not wider than the window`)
    t.same(await findCutTables(page), [], `${name}, ${look}: all columns and buttons are in view`)
    if (SHOTS !== undefined) await page.screenshot({ path: join(SHOTS, `${name}-${look}.png`) })
  }
  for (const width of TABLE_WIDTHS) {
    await resizeWindow(page, { width, height: 800 })
    t.same(await findCutTables(page), [], `${name}, ${width} px: all columns and buttons are in view`)
  }
  t.same(await findFaint(page), [], `${name}: contrast`)
  await page.emulateMedia({ colorScheme: null, reducedMotion: null })
  if (before !== null) await resizeWindow(page, before)
}
