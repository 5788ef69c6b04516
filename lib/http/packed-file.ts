/** A file of the package in both forms, made once: most clients take the packed one. Owner: §4.1. */

import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { headerOf } from '../invocation/forwarded-headers.ts'
import { type ConstantAnswer, sendConstant, toConstantBytes } from './constant-answer.ts'
import type { Exchange } from './exchange.ts'

const pack = promisify(gzip)

export interface PackedFile {
  readonly plain: ConstantAnswer
  readonly packed: ConstantAnswer
}

/** @param cache - `Cache-Control` */
export async function toPackedFile(bytes: Buffer, type: string, cache = 'no-cache'): Promise<PackedFile> {
  const shared = ['X-Content-Type-Options', 'nosniff', 'Vary', 'Accept-Encoding']
  return {
    plain: { ...toConstantBytes(200, bytes, type, shared), cache },
    packed: { ...toConstantBytes(200, await pack(bytes), type, ['Content-Encoding', 'gzip', ...shared]), cache },
  }
}

/** Sends the form that the client takes. */
export function sendPackedFile(exchange: Exchange, { plain, packed }: PackedFile): void {
  const accepted = headerOf(exchange.req.rawHeaders, 'accept-encoding') ?? ''
  sendConstant(exchange, /\bgzip\b(?!;q=0(?:\D|$))/.test(accepted) ? packed : plain)
}
