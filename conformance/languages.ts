/** The languages whose functions answer alike, and what the specification gives some of them less. Owner: page bin/conformance. */

import type { RuntimeName } from '../lib/core/identity.ts'

export interface Language {
  /** Folder of its functions, and name in titles. */
  label: string
  runtime: RuntimeName
  extension: string
  /** File of the fixtures that is the handler, and those beside it. */
  handler: string
  beside: Record<string, string>
  /** Program that must be there. */
  program: string
  /** Another style of the language before it: what costs much time is left out. */
  variant?: true
  /** Each function of it is built, which takes seconds: few functions with many routes instead of many functions. */
  compiled?: true
}

export const LANGUAGES: readonly Language[] = [
  { label: 'js', runtime: 'node', extension: '.js', handler: 'all/handler.js', beside: {}, program: 'node' },
  {
    label: 'cjs',
    runtime: 'node',
    extension: '.cjs',
    handler: 'all/handler.cjs',
    beside: { '_plain.mjs': 'all/handler.js' },
    variant: true,
    program: 'node',
  },
  {
    label: 'ts',
    runtime: 'node',
    extension: '.ts',
    handler: 'all/handler.ts',
    beside: { '_plain.mjs': 'all/handler.js', '_types.ts': 'all/_types.ts' },
    variant: true,
    program: 'node',
  },
  { label: 'py', runtime: 'python', extension: '.py', handler: 'all/handler.py', beside: {}, program: 'python3' },
  {
    label: 'pya',
    runtime: 'python',
    extension: '.py',
    handler: 'async/handler.py',
    beside: { '_plain.py': 'all/handler.py' },
    variant: true,
    program: 'python3',
  },
  { label: 'php8', runtime: 'php', extension: '.php', handler: 'all/handler.php', beside: {}, program: 'php' },
  { label: 'lua5', runtime: 'lua', extension: '.lua', handler: 'all/handler.lua', beside: {}, program: 'node' },
  {
    label: 'golang',
    runtime: 'go',
    extension: '.go',
    handler: 'all/handler.go',
    beside: {},
    program: 'go',
    compiled: true,
  },
  {
    label: 'rs',
    runtime: 'rust',
    extension: '.rs',
    handler: 'all/handler.rs',
    beside: {},
    program: 'cargo',
    compiled: true,
  },
]

/** Labels that lack a case, with the specification's reason. */
export type Lacks = Readonly<Record<string, string>>

const EXPLICIT = 'explicit envelope required'
export const COMPILED: Lacks = { golang: EXPLICIT, rs: EXPLICIT }
export const ONE_EMPTY_TABLE: Lacks = { lua5: 'Lua has one empty table, which is an object' }
export const NO_PROCESS: Lacks = {
  lua5: 'Lua runs inside the gateway process: nothing to exit, kill or write to by descriptor',
}
