/**
 * Prints what is installed with the package, as CycloneDX. Asked with `--omit dev`, npm would leave out what is needed at run time and for
 * development both (esbuild, which tsx brings), so it is asked about a manifest without the packages of development.
 * Usage: node build/sbom.mjs
 */

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const read = name => JSON.parse(readFileSync(join(root, name), 'utf8'))
const manifest = read('package.json')
const lock = read('package-lock.json')
delete manifest.devDependencies
delete lock.packages[''].devDependencies
for (const [path, { dev }] of Object.entries(lock.packages)) if (dev === true) delete lock.packages[path]

const temp = mkdtempSync(join(tmpdir(), 'fngw-sbom-'))
try {
  // npm takes the name of the folder for that of the package.
  const folder = join(temp, manifest.name)
  mkdirSync(folder)
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest))
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock))
  const words = ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx', '--sbom-type', 'application']
  const { status } = spawnSync('npm', words, { cwd: folder, stdio: 'inherit' })
  process.exitCode = status ?? 1
} finally {
  rmSync(temp, { recursive: true, force: true })
}
