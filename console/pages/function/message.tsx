/** A message of the gateway in which the places of this function's code are links to the editor. Owner: page console/function. */

import { type FunctionId, toFunctionPage } from '../../data/function-records.ts'
import { toHref } from '../../router.ts'
import { isFile, type Piece, toPieces } from './places.ts'

interface MessageProps {
  text: string
  id: FunctionId
  /** The handler, below the functions root. */
  file: string
}

export function Message({ text, id, file }: MessageProps) {
  return (
    <>
      {toPieces(text).map((piece, index) => {
        const href = toPlaceHref(piece, id, file)
        if (typeof piece === 'string') return piece
        return href === null ? (
          piece.text
        ) : (
          // Two pieces may be the same text.
          <a key={index} href={href}>
            {piece.text}
          </a>
        )
      })}
    </>
  )
}

function toPlaceHref(piece: Piece, id: FunctionId, file: string): string | null {
  if (typeof piece === 'string') return null
  if (isFile(piece, file)) return toHref(toFunctionPage(id), { tab: 'code', line: String(piece.line) })
  const config = `${file.slice(0, file.lastIndexOf('/') + 1)}fn.config.json`
  return isFile(piece, config) ? toHref(toFunctionPage(id), { tab: 'config', view: 'json' }) : null
}
