// POST /notes with {"text": "..."}: adds a note
import { randomUUID } from 'node:crypto'
import { addNote } from './_store.js'

export async function handler(event) {
  let text
  try {
    ;({ text } = JSON.parse(event.body ?? ''))
  } catch {
    return { status: 400, body: { error: 'the body must be JSON' } }
  }
  if (typeof text !== 'string' || text.trim() === '') {
    return { status: 422, body: { error: '"text" must be a non-empty string' } }
  }
  const note = { id: randomUUID(), text: text.trim(), created: new Date(event.ts).toISOString() }
  await addNote(event.env, note)
  return { status: 201, headers: { Location: `/notes/${note.id}` }, body: note }
}
