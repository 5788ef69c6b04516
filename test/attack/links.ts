/** A tree, and a temporary folder, with links where the gateway writes and deletes: what they lead to must stay as it is. */

import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { endProduct, type Product, startProduct } from '../helpers/built.ts'
import { makeTree } from '../helpers/tree.ts'
import type { Outcome } from './attack.ts'
import { ask } from './target.ts'

/** Places below the functions root. */
const PLACES = [
  '.svc',
  '.svc/logs',
  '.svc/logs/access.log',
  '.svc/logs/error.log',
  '.svc/build',
  '.svc/build/tmp',
  '.svc/build/cargo',
  '.svc/logs/runtime.log',
  'slug/.go-build',
  'slug/.go-build/.gitignore',
  'slug/.go-build/handler',
  'slug/.go-build/handler/bin',
  'slug/.go-build/handler/src',
  'slug/.go-build/handler/go.mod',
  'slug/.go-build/handler/overlay.json',
]

const LONG_AGO = new Date(Date.now() - 86_400_000)

export async function attackLinks(product: Product, places: readonly string[] = PLACES): Promise<Outcome> {
  const broken: string[] = []
  for (const place of places) {
    const problem = await attackPlace(product, place)
    if (problem !== null) broken.push(`${place}: ${problem}`)
  }
  return { broken, seen: `${places.length} places in the tree, one in the temporary folder each` }
}

/** @returns what went wrong, or null */
async function attackPlace(product: Product, place: string): Promise<string | null> {
  const outside = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-outside-')))
  const temp = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-run-')))
  const tree = makeTree({
    'hello/handler.lua': 'function handler(event) return "hello" end\n',
    'slug/handler.go':
      'package main\n\nfunc handler(event map[string]any) map[string]any {\n\treturn map[string]any{"status": 200, "headers": map[string]any{}, "body": "slug"}\n}\n',
  })
  const isFile = /\.(?:log|mod|json|gitignore)$/.test(place)
  for (const folder of ['old', 'bin', 'tmp', 'logs', 'build/tmp/old']) fill(join(outside, folder))
  fill(outside)
  const link = join(tree.root, place)
  mkdirSync(dirname(link), { recursive: true })
  symlinkSync(isFile ? join(outside, 'precious') : outside, link)
  // As another user would leave it: the name of a gateway that is gone, old enough to be cleared away.
  symlinkSync(outside, join(temp, 'fngw-AAAAAA'))
  const before = list(outside)
  try {
    const running = await startProduct(product, tree.root, {
      temp,
      env: { FN_RUNTIMES: 'lua,go', FN_ACCESS_LOG: '1', FN_LOG_FILES: '1' },
    })
    try {
      const status = await ask(running.port, '/hello')
      if (status !== 200) return `hello answers ${status}`
      await ask(running.port, '/slug')
    } finally {
      await endProduct(running)
    }
    return list(outside) === before ? null : 'what the link leads to was changed'
  } catch (error) {
    return (error as Error).message
  } finally {
    for (const folder of [outside, temp]) rmSync(folder, { recursive: true, force: true })
    tree.cleanup()
  }
}

function fill(folder: string): void {
  mkdirSync(folder, { recursive: true })
  const file = join(folder, 'precious')
  writeFileSync(file, 'precious')
  utimesSync(file, LONG_AGO, LONG_AGO)
  utimesSync(folder, LONG_AGO, LONG_AGO)
}

function list(folder: string): string {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .map(entry => {
      const path = join(entry.parentPath, entry.name)
      return entry.isFile() ? `${path} ${readFileSync(path, 'utf8')}` : path
    })
    .sort()
    .join('\n')
}
