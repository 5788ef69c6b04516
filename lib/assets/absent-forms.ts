/**
 * Which compressed forms of a file are not there: not looked for one by one while the file's folder is as it was.
 * Owner: §2.11, page assets/static-assets.
 *
 *   begin: look at the folder ─► the forms are read ─► end: which have no name? ─► look, at each request: same folder? ─► still none
 *                                                                                    └ no ─► each is looked for, and the folder kept
 */

import { lstat } from 'node:fs'
import { lstat as lstatAsync } from 'node:fs/promises'
import type { Asset, FileState } from './file.ts'
import { type FolderLook, isSameFolder } from './folder-look.ts'

/** Compressed forms, and what their names end in. */
export const FORMS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const
type Ending = (typeof FORMS)[number][1]

export class AbsentForms {
  /** Of names that are not there. A form that is out of date is there, and so is a link that leads nowhere: both may turn good in their place. */
  endings: readonly Ending[] = []
  readonly #path: string
  readonly #folder: FolderLook
  /** Of the folder, from before the names were looked for; null when it would not tell of one that came since. */
  #state: FileState | null = null

  /**
   * @param path - of the file itself
   * @param folder - the one it lies in
   */
  constructor(path: string, folder: FolderLook) {
    this.#path = path
    this.#folder = folder
  }

  /** To be awaited before the forms are read, or one that comes in between would be missed. */
  begin(): Promise<void> {
    return new Promise(resolve =>
      this.#folder.ask((state, isSettled) => {
        this.#state = isSettled ? state : null
        resolve()
      }),
    )
  }

  /** @param forms - as they were read, null for those that cannot be used */
  async end(forms: Pick<Asset, (typeof FORMS)[number][0]>): Promise<void> {
    const missing = FORMS.flatMap(([coding, ending]) => (forms[coding] === null ? [ending] : []))
    const isAbsent = await Promise.all(missing.map(ending => lstatAsync(this.#path + ending).then(isNone, isNoEntry)))
    this.endings = missing.filter((_, index) => isAbsent[index])
  }

  /** @param onLooked - told whether all that was not there still is not; never before it has returned */
  look(onLooked: (isSame: boolean) => void): void {
    this.#folder.ask((state, isSettled) => {
      if (state !== null && this.#state !== null && isSameFolder(state, this.#state)) onLooked(true)
      else
        this.#lookForEach(isAbsent => {
          this.#state = isAbsent && isSettled ? state : null
          onLooked(isAbsent)
        })
    })
  }

  #lookForEach(onLooked: (isAbsent: boolean) => void): void {
    let open = this.endings.length
    let isAbsent = true
    for (const ending of this.endings) {
      lstat(this.#path + ending, error => {
        isAbsent &&= isNoEntry(error)
        open -= 1
        if (open === 0) onLooked(isAbsent)
      })
    }
  }
}

const isNone = (): boolean => false

function isNoEntry(error: NodeJS.ErrnoException | null): boolean {
  return error?.code === 'ENOENT'
}
