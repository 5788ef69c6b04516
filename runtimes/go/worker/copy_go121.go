//go:build go1.21

package fngwruntime

import "maps"

// copyFields gives a map of its own with the same values: its memory as it is, without finding places again.
func copyFields(of map[string]any) map[string]any { return maps.Clone(of) }
