/** Failures of builds and installs: their errors, and what the output of a tool says about them. Owner: §2.16, pages dependencies/resolve and install. */

import { relative, resolve, sep } from 'node:path'
import { type ErrorDetail, GatewayError } from '../core/errors.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { cutText } from '../core/text.ts'
import type { ToolResult } from './run-tool.ts'

/** Milliseconds after which work that failed for no fault of its sources is tried again. */
export const BUILD_RETRY_MS = 10_000
/** Lines and characters of a compiler's output that an error shows. */
const MAX_TAIL_LINES = 8
const MAX_TAIL_CHARS = 2000
/** Characters of a source line that an error shows. */
const MAX_FRAME_CHARS = 160

/** A build that failed for a reason in the sources: it will fail again until they change. */
export function sourceError(message: string, detail: ErrorDetail = {}): GatewayError {
  return new GatewayError('LOAD_FAILED', message, { detail })
}

/** True when trying again without a change may help: the cause is not a line of the sources. */
export function isPassing(error: GatewayError): boolean {
  return error.code !== 'LOAD_FAILED' || error.detail?.file === undefined
}

/** The error for a tool that failed without naming a line of the sources. @param action - such as `go build` */
export function toolError(action: string, result: ToolResult, timeoutMs: number, hint?: string): GatewayError {
  const detail: ErrorDetail = hint === undefined ? {} : { hint }
  const late = `${action} took longer than ${timeoutMs / 1000} s and was stopped`
  const lines = result.output.split('\n').map(line => line.trimEnd())
  const last = lines.filter(line => line !== '').slice(-MAX_TAIL_LINES)
  const why = result.problem ?? `${action} exited with code ${result.code}`
  return sourceError(
    `build failed: ${result.timedOut ? late : cutText(last.join('\n'), MAX_TAIL_CHARS) || why}`,
    detail,
  )
}

interface Compiler {
  action: string
  timeoutMs: number
  functionsRoot: string
  /** Where relative paths in messages start, full path. */
  cwd: string
  /** A message, with groups `path`, `line`, `column` (which may be missing) and `message`. */
  pattern: RegExp
  /** Other lines that are shown; default: none. */
  isShown?(line: string): boolean
  /**
   * The text of a file by its full path; null when it is not one of the sources that were built: a message may name any file, and the
   * gateway may read more than the function.
   */
  sourceOf(path: string): string | null
}

/** The error for a compiler that failed: its first lines with the place of the first message, or the end of its output. */
export function compilerError(result: ToolResult, compiler: Compiler, hint: string | undefined): GatewayError {
  const { action, timeoutMs, functionsRoot, cwd, pattern, isShown, sourceOf } = compiler
  if (result.timedOut || result.problem !== null) return toolError(action, result, timeoutMs)
  const lines: string[] = []
  let detail: ErrorDetail | null = null
  for (const text of result.output.split('\n')) {
    const found = pattern.exec(text)?.groups
    if (found === undefined) {
      if (isShown?.(text)) lines.push(text)
      continue
    }
    const { path = '', line, column, message } = found
    const full = resolve(cwd, path)
    const file = full.startsWith(functionsRoot + sep) ? relative(functionsRoot, full).split(sep).join('/') : path
    lines.push(`${file}:${line}${column === undefined ? '' : `:${column}`}: ${message}`)
    if (detail !== null) continue
    const source = sourceOf(full)
    detail = { file, line: Number(line) }
    if (source !== null) detail.stack = toSourceFrame(source, Number(line), Number(column))
  }
  if (detail === null) return toolError(action, result, timeoutMs, hint)
  const rest = lines.length - MAX_TAIL_LINES
  const head = [...lines.slice(0, MAX_TAIL_LINES), ...(rest > 0 ? [`and ${rest} more`] : [])].join('\n')
  return sourceError(`build failed: ${cutText(head, MAX_TAIL_CHARS)}`, {
    ...detail,
    ...(hint !== undefined && { hint }),
  })
}

/** The line of an error and the one before it, numbered, with a mark below the column. @param column - NaN when unknown */
function toSourceFrame(source: string, line: number, column: number): string {
  const first = Math.max(1, line - 1)
  const shown = source
    .split('\n')
    .slice(first - 1, line)
    .map((text, at) => `${String(first + at).padStart(5)} | ${text.slice(0, MAX_FRAME_CHARS).replaceAll('\t', ' ')}`)
  if (column <= MAX_FRAME_CHARS) shown.push(`      | ${' '.repeat(column - 1)}^`)
  return shown.join('\n')
}

/** The error for a toolchain that cannot build. */
export function toOldError(found: string, oldest: string): GatewayError {
  const hint = `${found} is too old: ${oldest} or newer is needed`
  return new GatewayError('RUNTIME_DOWN', 'runtime down', { headers: { 'Retry-After': '1' }, detail: { hint } })
}

// Package tools: npm, pip and Composer.

/** Where a failure comes from: file below the functions root, line from 1. */
export interface InstallPlace {
  file: string
  line?: number
}

/** A failure that lasts until a file changes. */
export function installError(message: string, place: InstallPlace, hint?: string, cause?: unknown): GatewayError {
  const detail = { ...place, ...(hint !== undefined && { hint }) }
  return new GatewayError('LOAD_FAILED', `install failed: ${message}`, { detail, cause })
}

/** A failure that may be over when it is tried again after a while: network, disk, time. */
export function passingError(message: string, hint?: string, cause?: unknown): GatewayError {
  const detail = hint === undefined ? {} : { detail: { hint } }
  return new GatewayError('LOAD_FAILED', `install failed: ${message}`, { ...detail, cause })
}

interface FailureFields {
  /** `lasting` until a file changes; `passing`: trying again may help; `unknown`: it may be either. */
  kind: 'lasting' | 'passing' | 'unknown'
  hint?: string | undefined
  /** The package that the output names; '' when it names none. */
  packageName?: string
  output?: string
}

/** A package tool that failed. Folders that share an install share it, and each gets its own error for it. */
export class ToolFailure extends Error {
  readonly kind: FailureFields['kind']
  readonly hint: string | undefined
  readonly packageName: string
  readonly output: string

  constructor(message: string, { kind, hint, packageName = '', output = '' }: FailureFields) {
    super(message)
    this.kind = kind
    this.hint = hint
    this.packageName = packageName
    this.output = output
  }

  /** The error for a folder. @param message - with what the folder adds @param asked - what asks for the package */
  toError(message: string, asked: InstallPlace, hint = this.hint): GatewayError {
    if (this.kind !== 'lasting') return passingError(message, hint, this)
    const place = asked.line === undefined ? '' : `${asked.file}:${asked.line}: `
    return installError(`${place}${message}`, asked, hint, this)
  }
}

/** A sign of a failure in a tool's output. */
interface FailureSign {
  /** Its first group that is there names a package. */
  pattern: RegExp
  kind: 'lasting' | 'passing'
  /** How to mend it; `%s` is the package. */
  hint: string | undefined
}

export function toSigns(
  kind: FailureSign['kind'],
  signs: readonly (readonly [pattern: RegExp, hint?: string])[],
): FailureSign[] {
  return signs.map(([pattern, hint]) => ({ kind, pattern, hint }))
}

/** How the output of a package tool is read. */
export interface ToolWords {
  tool: string
  signs: readonly FailureSign[]
  /** The kind of a failure without a sign; default `unknown`. */
  otherwise?: 'lasting'
  /** For a tool that took too long. */
  lateHint?: string
  /** Lines and characters that an error shows. */
  maxLines: number
  maxChars: number
  /** The lines that matter, without the others. */
  toLines(output: string): readonly string[]
  /** The part of the output that has the signs; default: all. */
  toText?(output: string): string
  /** The name of the package; default: the first group of a sign's pattern that is there. */
  nameOf?(group: string, output: string): string
}

export function readFailure(result: ToolResult, words: ToolWords): ToolFailure {
  const { output, code, timedOut, problem } = result
  const { tool, signs, otherwise = 'unknown', lateHint, maxLines, maxChars } = words
  if (timedOut) {
    const message = `${tool} took longer than ${INSTALL_TIMEOUT_SECONDS} s and was stopped`
    return new ToolFailure(message, { kind: 'passing', hint: lateHint, output })
  }
  const shown = cutText(words.toLines(output).slice(0, maxLines).join(' | '), maxChars)
  const message = `${tool}: ${shown === '' ? (problem ?? `exited with code ${code}`) : shown}`
  const text = words.toText?.(output) ?? output
  for (const { pattern, kind, hint } of signs) {
    const found = pattern.exec(text)
    if (found === null) continue
    const group = found.slice(1).find(part => part !== undefined) ?? ''
    const packageName = words.nameOf?.(group, output) ?? group
    return new ToolFailure(message, { kind, hint: hint?.replaceAll('%s', () => packageName), packageName, output })
  }
  return new ToolFailure(message, { kind: problem === null ? otherwise : 'passing', output })
}
