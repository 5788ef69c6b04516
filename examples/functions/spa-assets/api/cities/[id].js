import { cities } from '../_cities.js'

export function handler(event, { id }) {
  const city = cities.find(city => city.id === id)
  return city ?? { status: 404, body: { error: `no city ${id}` } }
}
