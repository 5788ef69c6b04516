/** `fngw openapi`: the document of a tree that need not be served. Owner: page bin/openapi. */

import { randomBytes } from 'node:crypto'
import { renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createGateway, type GatewayOptions } from '../lib/index.ts'
import { toWarningText } from './banner.ts'
import type { Output } from './output.ts'
import { CommandError } from './usage-error.ts'

/**
 * Prints the document, or writes it to a file; warnings of the tree go to standard error.
 * @throws CommandError, SettingsError
 */
export async function runOpenApi(
  gatewayOptions: GatewayOptions,
  out: string | undefined,
  output: Output,
): Promise<void> {
  // The document of a gateway that keeps it to itself can be made all the same.
  const flags = { ...gatewayOptions.flags, docsEnabled: true }
  const gateway = await createGateway({ ...gatewayOptions, flags, inspect: true })
  try {
    // No function can claim this path of it.
    const text = JSON.stringify((await gateway.inject('/docs/_ui/openapi.json')).json(), null, 2)
    for (const warning of gateway.warnings) output.note(toWarningText(warning, output))
    if (out === undefined) output.result(text)
    else writeWhole(out, `${text}\n`)
  } finally {
    await gateway.close()
  }
}

/** Readers see the old document or the new one, never a part. */
function writeWhole(path: string, text: string): void {
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`
  try {
    // A device or pipe, such as /dev/stdout, cannot be replaced.
    if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
      writeFileSync(path, text)
      return
    }
    writeFileSync(temporary, text, { flag: 'wx' })
    renameSync(temporary, path)
  } catch (error) {
    rmSync(temporary, { force: true })
    const { code, message } = error as NodeJS.ErrnoException
    throw new CommandError(`--out ${path} cannot be written: ${code ?? message}`)
  }
}
