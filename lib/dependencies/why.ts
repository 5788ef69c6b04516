/** Who asked for a package that is installed: the manifest, a comment, or another package. Owner: §2.16, page bin/deps. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isObject } from '../core/json.ts'
import { toPackageName } from './requirements.ts'

/** A package in a folder of installed ones. */
interface Installed {
  name: string
  version: string
  /** Names of the packages that it needs. */
  needs: readonly string[]
}

const READERS: Readonly<Record<string, (folder: string) => Installed[]>> = {
  python: folder => namesIn(join(folder, '.deps')).flatMap(name => readDistInfo(join(folder, '.deps', name))),
  node: folder =>
    namesIn(join(folder, 'node_modules')).flatMap(name =>
      name.startsWith('@')
        ? namesIn(join(folder, 'node_modules', name)).flatMap(inner =>
            readPackage(join(folder, 'node_modules', name, inner)),
          )
        : readPackage(join(folder, 'node_modules', name)),
    ),
  php: folder => readComposer(join(folder, 'vendor', 'composer', 'installed.json')),
}

/** What is installed beside a function, by name. */
export function listInstalled(runtime: string, folder: string): Installed[] {
  return (READERS[runtime]?.(folder) ?? []).sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** Names of installed packages that lead from nobody's need to this one: the shortest way, the package itself last. */
export function findWay(installed: readonly Installed[], wanted: string): string[] | null {
  const target = installed.find(({ name }) => isSame(name, wanted))
  if (target === undefined) return null
  const ways: Installed[][] = [[target]]
  const seen = new Set([target])
  for (const way of ways) {
    const users = installed.filter(({ needs }) => needs.some(need => isSame(need, way[0]!.name)))
    if (users.length === 0) return way.map(({ name, version }) => `${name} ${version}`)
    for (const user of users.filter(one => !seen.has(one))) {
      seen.add(user)
      ways.push([user, ...way])
    }
  }
  return ways[0]!.map(({ name, version }) => `${name} ${version}`)
}

function isSame(a: string, b: string): boolean {
  return toPackageName(a) === toPackageName(b)
}

function readDistInfo(folder: string): Installed[] {
  if (!folder.endsWith('.dist-info')) return []
  const head = readText(join(folder, 'METADATA')).split(/\r?\n\r?\n/, 1)[0]!
  const fields = [...head.matchAll(/^([A-Za-z-]+):\s*(.*?)\s*$/gm)].map(([, key, value]) => ({ key, value: value! }))
  const name = fields.find(({ key }) => key === 'Name')?.value
  const version = fields.find(({ key }) => key === 'Version')?.value
  if (name === undefined || version === undefined) return []
  const needs = fields
    // What an extra needs is needed by nobody who did not ask for it.
    .filter(({ key, value }) => key === 'Requires-Dist' && !/;.*\bextra\b/.test(value))
    .flatMap(({ value }) => /^[A-Za-z0-9._-]+/.exec(value)?.[0] ?? [])
  return [{ name, version, needs }]
}

function readPackage(folder: string): Installed[] {
  const value = parse(readText(join(folder, 'package.json')))
  if (typeof value.name !== 'string' || typeof value.version !== 'string') return []
  return [{ name: value.name, version: value.version, needs: keysOf(value.dependencies) }]
}

function readComposer(file: string): Installed[] {
  const { packages } = parse(readText(file))
  if (!Array.isArray(packages)) return []
  return packages.flatMap(one =>
    isObject(one) && typeof one.name === 'string'
      ? [{ name: one.name, version: String(one.version ?? ''), needs: keysOf(one.require) }]
      : [],
  )
}

function keysOf(value: unknown): string[] {
  return isObject(value) ? Object.keys(value) : []
}

function parse(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
