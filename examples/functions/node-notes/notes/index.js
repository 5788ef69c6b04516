// GET /notes: all notes, or those that contain ?q=
import { readNotes } from './_store.js'

export async function handler(event) {
  const notes = await readNotes(event.env)
  const wanted = event.query.q
  return wanted ? notes.filter(note => note.text.includes(wanted)) : notes
}
