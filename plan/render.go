// SPDX-License-Identifier: Apache-2.0

package plan

// Commands returns the command lines an administrator would have typed for s.
func (s Step) Commands() []string { return nil }
