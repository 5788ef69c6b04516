/** A program that waits before it works: what a gateway does meanwhile can be looked at for as long as a test likes. */

import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export interface GatedTool {
  /** Full path of the program that stands for the real one. */
  path: string
  close(): void
  open(): void
}

/**
 * @param folder - a temporary folder
 * @param program - full path of the real one
 * @param work - shell pattern of the arguments that wait: `*install*`
 */
export function makeGatedTool(folder: string, program: string, work: string): GatedTool {
  const path = join(folder, 'gated')
  const gate = join(folder, 'open')
  const lines = [
    '#!/bin/sh',
    `case "$*" in ${work}) until [ -e '${gate}' ]; do sleep 0.02; done;; esac`,
    `exec '${program}' "$@"`,
  ]
  writeFileSync(path, `${lines.join('\n')}\n`)
  chmodSync(path, 0o755)
  const open = () => writeFileSync(gate, '')
  open()
  return { path, open, close: () => rmSync(gate) }
}
