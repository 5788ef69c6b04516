/**
 * Gateways that are killed at random moments while they install packages, and what must be true afterwards: the function's packages are
 * the old set or the new one, whole, and the next gateway answers with the new one. Real npm, pip and Composer, packages from this machine.
 */

import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { PackageFolder } from '../../lib/dependencies/package-set.ts'
import { killGateway, startGateway } from './jobs.ts'
import { startNpmRegistry } from '../helpers/npm-registry.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'
import { makeWheels } from '../helpers/wheels.ts'
import { createRandom } from '../helpers/random.ts'

/** Files beside the main one of each package: a set that is half there lacks some. */
const FILES = 25
const PACKAGES = ['left', 'peer']

export type KilledRuntime = 'node' | 'python' | 'php'

export interface KillReport {
  kills: number
  /** Kills that found the old set, and the new one. */
  old: number
  fresh: number
  /** Kills in the middle of an install: a draft was there. */
  within: number
  /** What must not be. */
  wrong: string[]
}

interface Language {
  handler: [file: string, text: string]
  manifest: string
  target: '.deps' | 'node_modules' | 'vendor'
  toManifest(version: string): string
  /** Version of a package in a folder of packages, null when a file of it is missing. */
  versionIn(folder: string, name: string): string | null
  /** Made by an install: with it the next one is `npm ci`. */
  lock: string | null
}

const extras = (name: string, version: string) =>
  Object.fromEntries(Array.from({ length: FILES }, (_, i) => [`part${i}.txt`, `${name} ${version}`]))

function readVersion(folder: string, name: string, main: string): string | null {
  const parts = Array.from({ length: FILES }, (_, i) => `${folder}/${name}/part${i}.txt`)
  if (!existsSync(`${folder}/${name}/${main}`) || !parts.every(existsSync)) return null
  const texts = new Set(parts.map(part => readFileSync(part, 'utf8')))
  const [text = ''] = texts
  return texts.size === 1 && text.startsWith(`${name} `) ? text.slice(name.length + 1) : null
}

const LANGUAGES: Record<KilledRuntime, Language> = {
  node: {
    handler: ['handler.js', "exports.handler = () => [require('left'), require('peer')]\n"],
    manifest: 'package.json',
    target: 'node_modules',
    toManifest: version => JSON.stringify({ name: 'mine', dependencies: { left: version, peer: version } }),
    versionIn: (folder, name) => readVersion(folder, name, 'index.js'),
    lock: 'package-lock.json',
  },
  python: {
    handler: ['handler.py', 'import left, peer\ndef handler(event):\n    return [left.VERSION, peer.VERSION]\n'],
    manifest: 'requirements.txt',
    target: '.deps',
    toManifest: version => PACKAGES.map(name => `${name}==${version}\n`).join(''),
    versionIn: (folder, name) => readVersion(folder, name, '__init__.py'),
    lock: null,
  },
  php: {
    handler: ['handler.php', '<?php function handler() { return [\\left\\VERSION, \\peer\\VERSION]; }\n'],
    manifest: 'composer.json',
    target: 'vendor',
    toManifest: version =>
      JSON.stringify({
        repositories: [{ type: 'path', url: '../_lib/*' }, { 'packagist.org': false }],
        require: Object.fromEntries(PACKAGES.map(name => [`test/${name}`, version])),
      }),
    versionIn: (folder, name) => readVersion(`${folder}/test`, name, 'main.php'),
    lock: 'composer.lock',
  },
}

/** Packages of php in paths below the functions root. */
function phpPackages(): Record<string, TreeEntry> {
  const entries: Record<string, TreeEntry> = {}
  for (const version of VERSIONS) {
    for (const name of PACKAGES) {
      const json = { name: `test/${name}`, version, autoload: { files: ['main.php'] } }
      const main = `<?php namespace ${name}; const VERSION = '${version}';`
      const files = { 'composer.json': { json }, 'main.php': main, ...extras(name, version) }
      for (const [file, entry] of Object.entries(files)) entries[`_lib/${name}-${version}/${file}`] = entry
    }
  }
  return entries
}

const VERSIONS = ['1.0.0', '2.0.0'] as const

/** @param kills - gateways that are killed, one after the other, over one tree */
export async function killInstalls(runtime: KilledRuntime, kills: number, seed: number): Promise<KillReport> {
  const random = createRandom(seed)
  const language = LANGUAGES[runtime]
  const all = VERSIONS.flatMap(version => PACKAGES.map(name => ({ name, version })))
  const registry = await startNpmRegistry(
    all.map(({ name, version }) => ({
      name,
      version,
      files: { 'index.js': `module.exports = '${version}'`, ...extras(name, version) },
    })),
  )
  const away = makeTree()
  const wheels = all.map(({ name, version }) => ({
    name,
    version,
    files: Object.fromEntries(
      Object.entries({ '__init__.py': `VERSION = '${version}'\n`, ...extras(name, version) }).map(([file, text]) => [
        `${name}/${file}`,
        text,
      ]),
    ),
  }))
  const libraries = runtime === 'php' ? phpPackages() : {}
  const tree = makeTree({ ...libraries, [`fn/${language.handler[0]}`]: language.handler[1] })
  const env = {
    ...(runtime === 'python' && makeWheels(away.root, wheels)),
    npm_config_registry: registry.url,
    npm_config_cache: away.path('cache'),
    COMPOSER_HOME: away.path('composer'),
  }
  const bed = new KillBed(runtime, tree, env)
  try {
    return await bed.run(kills, random)
  } finally {
    await registry.close()
    tree.cleanup()
    away.cleanup()
  }
}

class KillBed {
  readonly #runtime: KilledRuntime
  readonly #language: Language
  readonly #tree: Tree
  readonly #env: Record<string, string>
  readonly #locks = new Map<string, string>()

  constructor(runtime: KilledRuntime, tree: Tree, env: Record<string, string>) {
    this.#runtime = runtime
    this.#language = LANGUAGES[runtime]
    this.#tree = tree
    this.#env = env
  }

  async run(kills: number, random: (below: number) => number): Promise<KillReport> {
    const report: KillReport = { kills: 0, old: 0, fresh: 0, within: 0, wrong: [] }
    // Both once to their end: what an install takes here, and lock files to install from.
    let span = 0
    for (const version of VERSIONS) {
      this.#want(version, false)
      span = await this.#toEnd(version, report)
    }
    for (let at = 0; at < kills; at++) {
      const version = VERSIONS[at % 2]!
      this.#want(version, at % 4 >= 2)
      const running = await this.#start()
      const answer = fetch(`${running.url}/fn`).catch(() => null)
      // A little longer than it takes: the last moments of an install are the ones of the renames.
      await new Promise(resolve => setTimeout(resolve, random(Math.ceil(span * 1.1))))
      await killGateway(running)
      await answer
      report.kills += 1
      this.#check(version, report)
      await this.#toEnd(version, report)
    }
    return report
  }

  #start(): ReturnType<typeof startGateway> {
    return startGateway(this.#tree.root, { runtimes: [this.#runtime], env: this.#env })
  }

  /** As after an edit of the manifest: the set of the version is to be filled again. */
  #want(version: string, isLocked: boolean): void {
    const { manifest, toManifest, lock } = this.#language
    rmSync(this.#tree.path('.svc/deps'), { recursive: true, force: true })
    writeFileSync(this.#tree.path(`fn/${manifest}`), toManifest(version))
    if (lock === null) return
    const text = isLocked ? this.#locks.get(version) : undefined
    if (text === undefined) rmSync(this.#tree.path(`fn/${lock}`), { force: true })
    else writeFileSync(this.#tree.path(`fn/${lock}`), text)
  }

  /** A gateway that nobody kills. @returns milliseconds from its start to the answer */
  async #toEnd(version: string, report: KillReport): Promise<number> {
    const running = await this.#start()
    const startedAt = performance.now()
    try {
      const answer = await fetch(`${running.url}/fn`)
      const text = await answer.text()
      if (text !== JSON.stringify([version, version])) report.wrong.push(`wants ${version}, answers ${text}`)
      const found = this.#versions()
      if (found !== version) report.wrong.push(`wants ${version}, has ${found} in its folder`)
      if (existsSync(this.#tree.path('fn/.svc-deps'))) report.wrong.push('.svc-deps was left behind')
      const { lock, manifest, toManifest } = this.#language
      if (readFileSync(this.#tree.path(`fn/${manifest}`), 'utf8') !== toManifest(version))
        report.wrong.push(`${manifest} was changed`)
      if (lock !== null) this.#locks.set(version, readFileSync(this.#tree.path(`fn/${lock}`), 'utf8'))
      return performance.now() - startedAt
    } finally {
      await killGateway(running)
    }
  }

  /** What the killed gateway left: a whole set, in its place or where the next gateway takes it from. */
  #check(wanted: string, report: KillReport): void {
    const { target, lock } = this.#language
    if (existsSync(this.#tree.path('.svc/deps'))) report.within += 1
    new PackageFolder(this.#tree.path('fn'), target).recover()
    const found = this.#versions()
    if (found === null) report.wrong.push(`half a set after a kill on the way to ${wanted}`)
    else if (found === wanted) report.fresh += 1
    else report.old += 1
    if (lock === null || !existsSync(this.#tree.path(`fn/${lock}`))) return
    JSON.parse(readFileSync(this.#tree.path(`fn/${lock}`), 'utf8'))
  }

  /** The version that both packages have; null when they differ or are not whole. */
  #versions(): string | null {
    const folder = this.#tree.path(`fn/${this.#language.target}`)
    const found = new Set(PACKAGES.map(name => this.#language.versionIn(folder, name)))
    const [version = null] = found
    return found.size === 1 ? version : null
  }
}
