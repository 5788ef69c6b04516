/** One functions folder under two names: what the gateway calls it, and where it lies here. Owner: page remote/daemon-server. */

import { posix } from 'node:path'

export class PathMap {
  readonly #there: string
  readonly #here: string

  /**
   * @param there - functions root of the gateway, full path
   * @param here - full path of the same folder on this machine
   */
  constructor(there: string, here: string) {
    this.#there = withSlash(there)
    this.#here = withSlash(here)
  }

  /** True when no path has to be changed. */
  get isSame(): boolean {
    return this.#there === this.#here
  }

  /**
   * A path of the gateway as it is here.
   * @throws Error when it is not below the functions root: a gateway reaches nothing else
   */
  toHere(path: unknown): string {
    const plain = typeof path === 'string' && path !== '' ? posix.normalize(path) : ''
    if (plain !== '' && withSlash(plain) === this.#there) return this.#here.slice(0, -1) || '/'
    if (plain === '' || plain.includes('\0') || !plain.startsWith(this.#there))
      throw new Error(`${JSON.stringify(path)} is not below the functions folder of the gateway, ${this.#there}`)
    return this.#here + plain.slice(this.#there.length)
  }

  /** A text for the gateway: paths of the folder are as the gateway knows them. */
  toThere(text: string): string {
    return this.isSame ? text : text.replaceAll(this.#here, this.#there)
  }
}

function withSlash(path: string): string {
  const plain = posix.normalize(path)
  return plain.endsWith('/') ? plain : `${plain}/`
}
