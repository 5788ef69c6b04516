/** Bodies and results of jobs, each a file; one that is being written has another name until it is whole. Owner: page jobs/file-store. */

import type { FileHandle } from 'node:fs/promises'
import { rename, rm } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { openNew, openToRead, syncFolder } from '../files/own-file.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { isJobId } from './job.ts'
import type { PartWriter } from './job-store.ts'

const DRAFT = '.part'

/** The parts of one kind. */
export class PartFiles {
  readonly #folder: OwnFolder

  constructor(folder: OwnFolder) {
    this.#folder = folder
  }

  async read(id: string): Promise<Readable | null> {
    const file = await openToRead(this.#folder.pathOf(id))
    return file === null ? null : file.createReadStream()
  }

  async write(id: string): Promise<PartWriter> {
    await this.#folder.ensure()
    const path = this.#folder.pathOf(id)
    const draft = `${path}${DRAFT}`
    // Of an attempt that was cut off.
    await rm(draft, { force: true, recursive: true })
    return new DraftFile(await openNew(draft), draft, path, this.#folder.path)
  }

  async remove(id: string): Promise<void> {
    await rm(this.#folder.pathOf(id), { force: true, recursive: true })
  }

  /** Deletes drafts and parts that belong to nothing; names that are not ours stay. */
  sweep(isKept: (id: string) => boolean): void {
    for (const { name } of this.#folder.list(/^job-/)) {
      const id = name.endsWith(DRAFT) ? name.slice(0, -DRAFT.length) : name
      if (isJobId(id) && (id !== name || !isKept(id))) this.#folder.remove(name)
    }
  }
}

class DraftFile implements PartWriter {
  readonly #file: FileHandle
  readonly #draft: string
  readonly #path: string
  readonly #folder: string

  constructor(file: FileHandle, draft: string, path: string, folder: string) {
    this.#file = file
    this.#draft = draft
    this.#path = path
    this.#folder = folder
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const { bytesWritten } = await this.#file.write(bytes, done, bytes.length - done)
      done += bytesWritten
    }
  }

  async end(): Promise<void> {
    try {
      await this.#file.sync()
      await this.#file.close()
      await rename(this.#draft, this.#path)
      await syncFolder(this.#folder)
    } catch (error) {
      await this.discard()
      throw error
    }
  }

  async discard(): Promise<void> {
    await this.#file.close().catch(() => {})
    await rm(this.#draft, { force: true }).catch(() => {})
  }
}
