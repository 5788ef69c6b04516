export const cities = [
  { id: 'lima', name: 'Lima', country: 'Peru', people: 10_092_000 },
  { id: 'oslo', name: 'Oslo', country: 'Norway', people: 717_000 },
  { id: 'pune', name: 'Pune', country: 'India', people: 3_124_000 },
]
