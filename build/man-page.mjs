/**
 * Writes the manual page of the command line, from its sources.
 * Usage: node --import tsx build/man-page.mjs [folder of the build, default dist]
 */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readCommands } from '../bin/command-tree.ts'
import { toManPage } from '../bin/man-page.ts'
import { createProgram } from '../bin/program.ts'

const build = process.argv[2] ?? 'dist'
const { version } = JSON.parse(readFileSync('package.json', 'utf8'))

// Nothing is run: what the commands print to, and who answers, does not matter.
const program = createProgram({ output: null, version, program: 'fngw', terminal: null })
mkdirSync(join(build, 'man'), { recursive: true })
writeFileSync(join(build, 'man', 'fngw.1'), toManPage(readCommands(program), version))
