/** A static file as it is sent: type, validators, caching. Owner: §2.11. */

import type { Stats } from 'node:fs'
import mime from 'mime'
import { type PreparedHead, toContentTag, toPreparedHead } from '../http/respond.ts'

/** Seconds a file with a hash in its name may be kept by clients: a year. */
const IMMUTABLE_MAX_AGE_SECONDS = 31_536_000

/** Fields by which two states of a file differ. */
export interface FileState {
  readonly dev: number
  readonly ino: number
  /** Bytes. */
  readonly size: number
  readonly mtimeMs: number
  readonly ctimeMs: number
}

export type Coding = 'br' | 'gzip'

/** A file read from disk. */
export interface ReadFile {
  /** Full path. */
  path: string
  state: FileState
  /** The whole content; null for a large file, which is read while it is sent. */
  body: Buffer | null
}

/** One form of an asset: as it is, or compressed. */
export interface AssetForm extends ReadFile {
  readonly meta: FormMeta
  readonly etag: string
  /** Seconds since 1970. */
  readonly modifiedSeconds: number
  /** Headers of a whole answer but its length, names and values in turn. */
  readonly headers: readonly string[]
  /** A whole answer as it is sent the short way. */
  readonly head: PreparedHead
  /** Headers of 304. */
  readonly validators: readonly string[]
}

export interface Asset {
  /** Below the mount, as it was asked for. */
  readonly name: string
  readonly plain: AssetForm
  readonly br: AssetForm | null
  readonly gzip: AssetForm | null
}

interface FormMeta {
  type: string
  cacheControl: string
  coding: Coding | null
  /** True when other clients may get another form. */
  varies: boolean
}

/** Forms of one asset from its file and the compressed files beside it. */
export function toAsset(name: string, plain: ReadFile, br: ReadFile | null, gzip: ReadFile | null): Asset {
  const meta = {
    type: toContentType(plain.path),
    cacheControl: toCacheControl(plain.path),
    varies: br !== null || gzip !== null,
  }
  return {
    name,
    plain: toForm(plain, { ...meta, coding: null }),
    br: br && toForm(br, { ...meta, coding: 'br' }),
    gzip: gzip && toForm(gzip, { ...meta, coding: 'gzip' }),
  }
}

export function toForm(file: ReadFile, meta: FormMeta): AssetForm {
  const modifiedSeconds = Math.floor(file.state.mtimeMs / 1000)
  const etag = file.body === null ? toStateTag(file.state) : toContentTag(file.body)
  const validators = ['ETag', etag, 'Last-Modified', new Date(modifiedSeconds * 1000).toUTCString()]
  validators.push('Cache-Control', meta.cacheControl)
  if (meta.varies) validators.push('Vary', 'Accept-Encoding')
  // nosniff: a browser that guessed could run an uploaded text as a script.
  const headers = [
    ...['Content-Type', meta.type, ...validators],
    ...['Accept-Ranges', 'bytes', 'X-Content-Type-Options', 'nosniff'],
  ]
  if (meta.coding !== null) headers.push('Content-Encoding', meta.coding)
  return { ...file, meta, etag, modifiedSeconds, headers, head: toPreparedHead(200, headers), validators }
}

export function toState({ dev, ino, size, mtimeMs, ctimeMs }: Stats): FileState {
  return { dev, ino, size, mtimeMs, ctimeMs }
}

export function isSameState(a: FileState, b: FileState): boolean {
  return a.ino === b.ino && a.size === b.size && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs && a.dev === b.dev
}

/** For files that are not read whole. The time in units of 1/1024 ms, finer than file systems count it. */
function toStateTag({ size, mtimeMs, ino }: FileState): string {
  return `"${size.toString(36)}-${Math.round(mtimeMs * 1024).toString(36)}-${ino.toString(36)}"`
}

/** Names with a wrong type in the registry: the registry means a video by `.ts` and a server's own module by `.cjs`. */
const OWN_TYPES: Readonly<Record<string, string>> = {
  ts: 'text/plain',
  mts: 'text/plain',
  cts: 'text/plain',
  tsx: 'text/plain',
  cjs: 'text/javascript',
  py: 'text/plain',
  rs: 'text/plain',
  go: 'text/plain',
  php: 'text/plain',
  ico: 'image/x-icon',
}

/** Texts are taken for UTF-8; JSON, SVG and XML say themselves what they are in. */
export function toContentType(path: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1)
  const dot = name.lastIndexOf('.')
  const extension = dot < 0 ? '' : name.slice(dot + 1).toLowerCase()
  const own = Object.hasOwn(OWN_TYPES, extension) ? OWN_TYPES[extension] : undefined
  const type = own ?? (extension === '' ? null : mime.getType(extension)) ?? 'application/octet-stream'
  return type.startsWith('text/') ? `${type}; charset=utf-8` : type
}

/** Eight or more hexadecimal digits between separators. */
const HASH = /(?:^|[._-])([0-9a-f]{8,})(?=[._-]|$)/gi
/** Digits that begin with a day, such as `20240131`: written by people, who put new content under the old name. */
const DAY = /^(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d*$/

/** A name with a hash never gets other content; every other file is asked about again each time. */
export function toCacheControl(path: string): string {
  for (const [, digits] of path.slice(path.lastIndexOf('/') + 1).matchAll(HASH)) {
    if (!DAY.test(digits!)) return `public, max-age=${IMMUTABLE_MAX_AGE_SECONDS}, immutable`
  }
  return 'public, max-age=0, must-revalidate'
}
