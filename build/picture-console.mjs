/**
 * Takes the README's pictures of the console: serves examples/apps/shop with the build, sends requests to it for a while, and
 * writes docs/images/console-light.png and console-dark.png.
 * Usage: node build/picture-console.mjs [folder, default docs/images]. Needs Chromium, or FNGW_TEST_CHROMIUM with its path.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as wait } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'

const SIZE = { width: 1280, height: 800 }
/** As long as the charts of the page. */
const TRAFFIC_MS = 300_000

const root = fileURLToPath(new URL('..', import.meta.url))
const target = process.argv[2] ?? join(root, 'docs/images')
const executablePath = [process.env.FNGW_TEST_CHROMIUM, '/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(
  path => path !== undefined && existsSync(path),
)
const folder = mkdtempSync(join(tmpdir(), 'fngw-picture-'))
cpSync(join(root, 'examples/apps/shop'), folder, { recursive: true })
const gateway = spawn(process.execPath, [join(root, 'dist/bin/fngw.js'), 'dev', '--port', '0'], {
  cwd: folder,
  stdio: ['ignore', 'pipe', 'ignore'],
})
const ended = once(gateway, 'close')
try {
  const url = await readUrl()
  await sendTraffic(url)
  mkdirSync(target, { recursive: true })
  const browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] })
  for (const colorScheme of ['light', 'dark']) {
    const page = await browser.newPage({ viewport: SIZE, colorScheme, reducedMotion: 'reduce' })
    await page.goto(`${url}/console`)
    await page.waitForLoadState('networkidle')
    await page.screenshot({ path: join(target, `console-${colorScheme}.png`) })
  }
  await browser.close()
} finally {
  gateway.kill('SIGTERM')
  await ended
  rmSync(folder, { recursive: true, force: true })
}

async function readUrl() {
  for await (const line of createInterface({ input: gateway.stdout })) {
    const [, url] = /^ready (\S+)/.exec(line) ?? []
    if (url !== undefined) return url
  }
  throw new Error('fngw dev ended before it was ready')
}

/** Calls in four languages, a few of them refused, more and fewer of them by turns. */
async function sendTraffic(url) {
  const post = (path, body, headers) =>
    fetch(url + path, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) })
  const login = await post('/login', { user: 'ada', password: 'for-development' })
  const authorization = `Bearer ${(await login.json()).token}`
  const calls = [
    () => fetch(`${url}/products`),
    () => fetch(`${url}/products?max_cents=1200`),
    () => fetch(`${url}/shipping?country=DE&grams=1500`),
    () => fetch(`${url}/account`, { headers: { authorization } }),
    () => fetch(`${url}/orders`, { headers: { authorization } }),
    () => fetch(`${url}/shipping?country=FR&grams=300`),
    () => fetch(`${url}/products?max_cents=900`),
    () => fetch(`${url}/products`),
    () => fetch(`${url}/orders/1`, { headers: { authorization } }),
  ]
  await (await post('/orders', { lines: [{ sku: 'CUP-1', count: 2 }] }, { authorization })).arrayBuffer()
  const refused = () => fetch(`${url}/account`)
  const end = performance.now() + TRAFFIC_MS
  for (let i = 0; performance.now() < end; i++) {
    const response = await (i % 100 === 99 ? refused() : calls[i % calls.length]())
    await response.arrayBuffer()
    await wait(15 + 12 * Math.sin(i / 150))
  }
}
