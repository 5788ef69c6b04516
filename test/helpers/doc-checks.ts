/** Tools that read a block of code which cannot be run where the tests run. Owner: page docs. */

import { spawnSync } from 'node:child_process'
import { transformSync } from 'esbuild'
import { parseAllDocuments } from 'yaml'

/** What is wrong with a text; null for nothing. */
type Check = (text: string) => string | null

function byProgram(program: string, ...args: string[]): Check {
  return text => {
    const { status, stderr, error } = spawnSync(program, args, { input: text, encoding: 'utf8' })
    return status === 0 ? null : (error?.message ?? stderr)
  }
}

function byFunction(parse: (text: string) => unknown): Check {
  return text => {
    try {
      parse(text)
      return null
    } catch (error) {
      return (error as Error).message
    }
  }
}

function checkYaml(text: string): string | null {
  const faults = parseAllDocuments(text).flatMap(document => document.errors)
  return faults.length === 0 ? null : faults.join('\n')
}

/** Whoever shows a language in a page names here who reads it. `text` is for people: nothing reads it. */
const CHECKS: Readonly<Record<string, Check>> = {
  sh: byProgram('bash', '-n'),
  console: text => CHECKS.sh!(text.replaceAll(/^(?![$>] ).*$/gm, '').replaceAll(/^[$>] /gm, '')),
  json: byFunction(JSON.parse),
  js: byFunction(text => transformSync(text, { format: 'esm' })),
  ts: byFunction(text => transformSync(text, { loader: 'ts', format: 'esm' })),
  python: byProgram('python3', '-c', 'import ast, sys; ast.parse(sys.stdin.read())'),
  php: byProgram('php', '-l'),
  yaml: checkYaml,
  text: () => null,
}

export function findCheck(language: string): Check | null {
  return CHECKS[language] ?? null
}
