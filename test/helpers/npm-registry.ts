/** A small registry for npm on loopback: the packages it is given, as the real one answers. */

import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'

/** One version of a package: its fields and files. */
export interface TestPackage {
  name: string
  version: string
  fields?: Record<string, unknown>
  files?: Record<string, string>
  /** As npm packed it, instead of `files`. */
  archive?: Buffer
}

export interface TestRegistry {
  url: string
  /** Paths that were asked for, in order. */
  asked: string[]
  close(): Promise<void>
}

export async function startNpmRegistry(packages: readonly TestPackage[]): Promise<TestRegistry> {
  const asked: string[] = []
  let url = ''
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url ?? '')
    asked.push(path)
    const archive = packages.find(item => path === archivePathOf(item))
    if (archive !== undefined) {
      response.end(toArchive(archive))
      return
    }
    const versions = packages.filter(({ name }) => path === `/${name}`)
    if (versions.length === 0) {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{"error":"not found"}')
      return
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(toDocument(versions, url)))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url,
    asked,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function archivePathOf({ name, version }: TestPackage): string {
  return `/${name}/-/${name.replace(/^@[^/]+\//, '')}-${version}.tgz`
}

function manifestOf({ name, version, fields }: TestPackage): Record<string, unknown> {
  return { name, version, main: 'index.js', ...fields }
}

function toDocument(versions: readonly TestPackage[], url: string): Record<string, unknown> {
  const documents = versions.map(item => {
    const archive = toArchive(item)
    const { scripts } = manifestOf(item) as { scripts?: Record<string, string> }
    const dist = {
      tarball: url + archivePathOf(item),
      integrity: `sha512-${createHash('sha512').update(archive).digest('base64')}`,
      shasum: createHash('sha1').update(archive).digest('hex'),
    }
    return { ...manifestOf(item), ...(scripts?.postinstall && { hasInstallScript: true }), dist }
  })
  return {
    name: versions[0]!.name,
    'dist-tags': { latest: versions.at(-1)!.version },
    versions: Object.fromEntries(documents.map(document => [(document as { version?: string }).version, document])),
  }
}

function toArchive(item: TestPackage): Buffer {
  if (item.archive !== undefined) return item.archive
  const files = { 'package.json': JSON.stringify(manifestOf(item)), 'index.js': '', ...item.files }
  const parts = Object.entries(files).flatMap(([name, text]) => [toHeader(`package/${name}`, text), toBlocks(text)])
  return gzipSync(Buffer.concat([...parts, Buffer.alloc(1024)]))
}

/** One entry of a tar archive: 512 bytes with numbers as octal text. */
function toHeader(name: string, text: string): Buffer {
  const header = Buffer.alloc(512)
  const octal = (value: number, length: number) => `${value.toString(8).padStart(length - 1, '0')}\0`
  header.write(name, 0)
  header.write(octal(0o644, 8), 100)
  header.write(octal(0, 8), 108)
  header.write(octal(0, 8), 116)
  header.write(octal(Buffer.byteLength(text), 12), 124)
  header.write(octal(0, 12), 136)
  header.write('        0', 148)
  header.write('ustar\x0000', 257)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return header
}

function toBlocks(text: string): Buffer {
  const bytes = Buffer.from(text)
  return Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)])
}
