/** Opens an address in the browser of this machine. Owner: page bin/dev. */

import { spawn } from 'node:child_process'

const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly string[]>>> = {
  darwin: ['open'],
  win32: ['cmd', '/c', 'start', ''],
}

/**
 * @param url - of this gateway; no shell reads it
 * @param onFailure - called when no browser could be started
 */
export function openUrl(url: string, onFailure: () => void): void {
  const [command = 'xdg-open', ...args] = OPENERS[process.platform] ?? ['xdg-open']
  const child = spawn(command, [...args, url], { stdio: 'ignore', detached: true })
  child.once('error', onFailure)
  child.once('exit', code => {
    if (code !== 0) onFailure()
  })
  // The browser may stay after the gateway.
  child.unref()
}

/** @param note - receives a line when there is no browser */
export function openPage(url: string, note: (line: string) => void): void {
  openUrl(url, () => note(`no browser could be opened: ${url}`))
}

/** Opens the documents of a gateway, or what it serves where it has none. @param note - takes a line for people */
export async function openDocs(url: string, hasDocs: Promise<boolean>, note: (line: string) => void): Promise<void> {
  openPage((await hasDocs) ? `${url}/docs` : url, note)
}
