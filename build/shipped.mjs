/**
 * What is installed with the package: its dependencies, and the packages that the build joins into `dist`, which are development
 * dependencies in the manifest. npm cannot be asked about just these, so it is asked about a manifest and a lock file without the others.
 * Usage: node build/shipped.mjs sbom    prints them as CycloneDX
 *        node build/shipped.mjs audit   known holes in them
 */

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** They are ten megabytes as packages and half a megabyte in `dist`. */
export const BUNDLED = ['ajv', 'cron-parser', 'mime', 'semver']

/** @type {Record<string, string[]>} */
const ARGUMENTS = {
  sbom: ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx', '--sbom-type', 'application'],
  audit: ['audit', '--package-lock-only'],
}

const root = fileURLToPath(new URL('..', import.meta.url))
/** @param {string} name */
const read = name => JSON.parse(readFileSync(join(root, name), 'utf8'))

/**
 * Paths in the lock file of the packages that are shipped, for every system.
 * @returns {Set<string>}
 */
export function shippedPaths() {
  const { packages } = read('package-lock.json')
  const paths = new Set(Object.keys(packages).filter(path => path !== '' && packages[path].dev !== true))
  /** @param {string} name */
  const add = name => {
    const path = `node_modules/${name}`
    if (paths.has(path)) return
    paths.add(path)
    for (const dependency of Object.keys(packages[path].dependencies ?? {})) add(dependency)
  }
  BUNDLED.forEach(add)
  return paths
}

/** @param {string} command */
function run(command) {
  const manifest = read('package.json')
  const lock = read('package-lock.json')
  const paths = shippedPaths()
  for (const name of BUNDLED) manifest.dependencies[name] = manifest.devDependencies[name]
  delete manifest.devDependencies
  Object.assign(lock.packages[''], { dependencies: manifest.dependencies, devDependencies: {} })
  for (const path of Object.keys(lock.packages)) {
    if (path !== '' && !paths.has(path)) delete lock.packages[path]
    else delete lock.packages[path].dev
  }
  const temp = mkdtempSync(join(tmpdir(), 'fngw-shipped-'))
  try {
    // npm takes the name of the folder for that of the package.
    const folder = join(temp, manifest.name)
    mkdirSync(folder)
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest))
    writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock))
    return spawnSync('npm', ARGUMENTS[command] ?? [], { cwd: folder, stdio: 'inherit' }).status ?? 1
  } finally {
    rmSync(temp, { recursive: true, force: true })
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = run(process.argv[2] ?? '')
