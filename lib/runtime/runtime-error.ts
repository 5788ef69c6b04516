/** A runtime's report of a failed call, as the error a client gets. Owner: §7. */

import { basename, dirname } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { type ErrorDetail, GatewayError } from '../core/errors.ts'
import { OwnFolder } from '../files/own-folder.ts'

type FailedFunction = Pick<FunctionVersion, 'entryPath' | 'entryFile' | 'callable' | 'policy'>

/**
 * @param fields - header of an `error` frame: `code message file line stack hint`
 * @param fn - the function that failed: a file below its functions root is named from there
 * @returns LOAD_FAILED or HANDLER_FAILED (500), CONTRACT_BROKEN (502), TIMEOUT (504)
 */
export function toRuntimeError(fields: Readonly<Record<string, unknown>>, fn: FailedFunction): GatewayError {
  const message = typeof fields.message === 'string' && fields.message !== '' ? fields.message : 'handler failed'
  if (fields.code === 'timeout') return toTimeout(fn)
  const options = toOptions(fields, fn)
  if (fields.code === 'contract') {
    // A result whose own field is called `status` is taken for an envelope: every language says how to return it.
    const hint = 'to return an object that has a field "status", put it in the body: { "status": 200, "body": { ... } }'
    const isStatus = message.startsWith('status must be an integer')
    return toBrokenContract(message, fn, { ...options.detail, ...(isStatus && { hint }) })
  }
  // Loaders of some languages name files in full.
  if (fields.code === 'load') return new GatewayError('LOAD_FAILED', message.replaceAll(toRoot(fn), ''), options)
  return new GatewayError('HANDLER_FAILED', message, options)
}

/** 504 of a call that ran past the time limit of its function; it names the line where the handler begins. */
export function toTimeout(fn: FailedFunction): GatewayError {
  const { policy, entryFile } = fn
  const line = findHandlerLine(fn)
  const config = `${entryFile.slice(0, entryFile.lastIndexOf('/') + 1)}fn.config.json`
  const hint = `a handler may take longer with a larger "timeout_ms" in ${config}`
  return new GatewayError('TIMEOUT', `runtime timeout after ${policy.timeoutMs} ms`, {
    detail: { file: entryFile, ...(line !== null && { line }), hint },
  })
}

/** Bytes of a handler file in which its line is looked for. */
const MAX_LINE_BYTES = 256 * 1024

function findHandlerLine({ entryPath, callable }: FailedFunction): number | null {
  const bytes = new OwnFolder(dirname(entryPath)).read(basename(entryPath))
  return bytes === null ? null : toHandlerLine(bytes.toString('utf8', 0, MAX_LINE_BYTES), callable.names)
}

/** @returns line, from 1, on which the first of the names is defined, in any of the languages; null when the text does not show it */
export function toHandlerLine(text: string, names: readonly string[]): number | null {
  const lines = text.split('\n').map(line => (/^\s*(?:\/\/|#|--|\*)/.test(line) ? '' : line))
  for (const name of names) {
    const definition =
      name === 'default'
        ? /\bexport\s+default\b|\bmodule\.exports\s*=/
        : new RegExp(
            `\\b(?:def|function|func|fn|const|let|var)\\b[\\s*]+${name}\\b|\\bexports\\.${name}\\b|\\b${name}\\s*=[^=]`,
          )
    const index = lines.findIndex(line => definition.test(line))
    if (index !== -1) return index + 1
  }
  return null
}

/**
 * 502 of an answer that is none; it names the file whose function gave it.
 * @param why - the rule that is broken
 */
export function toBrokenContract(
  why: string,
  { entryFile }: Pick<FunctionVersion, 'entryFile'>,
  detail: ErrorDetail = {},
): GatewayError {
  return new GatewayError('CONTRACT_BROKEN', `invalid runtime response: ${why}`, {
    detail: { file: entryFile, ...detail },
  })
}

function toOptions(
  { file, line, stack, hint }: Readonly<Record<string, unknown>>,
  fn: Pick<FunctionVersion, 'entryPath' | 'entryFile'>,
): { detail?: ErrorDetail } {
  const detail: ErrorDetail = {}
  if (typeof file === 'string') {
    const root = toRoot(fn)
    detail.file = file.startsWith(root) ? file.slice(root.length) : file
  }
  if (typeof line === 'number') detail.line = line
  if (typeof stack === 'string') detail.stack = stack
  if (typeof hint === 'string') detail.hint = hint
  return Object.keys(detail).length === 0 ? {} : { detail }
}

/** The functions root with its last separator, so that a folder of a similar name is not taken for it. */
function toRoot({ entryPath, entryFile }: Pick<FunctionVersion, 'entryPath' | 'entryFile'>): string {
  return entryPath.slice(0, -entryFile.length)
}

/** The error of an open call whose worker is gone. */
export function toDeath(reason: string): GatewayError {
  return new GatewayError('WORKER_DIED', `runtime worker ended: ${reason}`, { headers: { 'Retry-After': '1' } })
}
