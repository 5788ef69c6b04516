/** How a person has to type `fngw` here. Owner: page bin/init. */

import { relative } from 'node:path'
import { toShellWord } from '../lib/core/text.ts'

/**
 * @param script - full path of the program as it was started, `process.argv[1]`
 * @param env - npm sets a variable in it when it starts the program
 */
export function toProgramName(script: string, env: Readonly<Record<string, string | undefined>>, cwd: string): string {
  if (env.npm_command === 'exec' || /[/\\]node_modules[/\\]\.bin[/\\]/.test(script)) return 'npx fngw'
  const name = script.split(/[/\\]/).at(-1) ?? ''
  if (!/\.[cm]?[jt]s$/.test(name)) return 'fngw'
  // Started as a file: from a checkout.
  const path = toShellWord(relative(cwd, script) || script)
  return /ts$/.test(name) ? `npx tsx ${path}` : `node ${path}`
}
