import { cities } from '../_cities.js'

export function handler() {
  return cities.map(({ id, name }) => ({ id, name }))
}
