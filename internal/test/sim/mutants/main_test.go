package main

import "testing"

// The engine has the texts that the bugs replace: a change of one changes the list.
func TestMutantsFit(t *testing.T) {
	for _, m := range mutants {
		if _, err := m.mutate("../../../.."); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
