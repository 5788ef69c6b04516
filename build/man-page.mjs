/**
 * Writes the manual page of the built command line.
 * Usage: node build/man-page.mjs [folder of the build, default dist]
 */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const build = resolve(process.argv[2] ?? 'dist')
const load = name => import(pathToFileURL(join(build, 'bin', `${name}.js`)).href)
const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
const { createProgram } = await load('program')
const { readCommands } = await load('command-tree')
const { toManPage } = await load('man-page')

// Nothing is run: what the commands print to, and who answers, does not matter.
const program = createProgram({ output: null, version, program: 'fngw', terminal: null })
mkdirSync(join(build, 'man'), { recursive: true })
writeFileSync(join(build, 'man', 'fngw.1'), toManPage(readCommands(program), version))
