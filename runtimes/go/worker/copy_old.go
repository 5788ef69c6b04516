//go:build !go1.21

package fngwruntime

// copyFields gives a map of its own with the same values.
func copyFields(of map[string]any) map[string]any {
	copied := make(map[string]any, len(of))
	for key, value := range of {
		copied[key] = value
	}
	return copied
}
