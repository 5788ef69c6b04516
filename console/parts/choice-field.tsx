/** One of some words, with the one that is set always among them. Owner: page console/console. */

interface ChoiceFieldProps {
  label: string
  value: string
  choices: readonly string[]
  /** Label of the empty value; absent: there is none. */
  all?: string
  onChange: (value: string) => void
}

export function ChoiceField({ label, value, choices, all, onChange }: ChoiceFieldProps) {
  const words = value === '' ? choices : [...new Set([...choices, value])]
  return (
    <select aria-label={label} value={value} onChange={event => onChange(event.currentTarget.value)}>
      {all !== undefined && <option value="">{all}</option>}
      {words.map(word => (
        <option key={word}>{word}</option>
      ))}
    </select>
  )
}
