// SPDX-License-Identifier: Apache-2.0

package page

import "html/template"

// Style is the style sheet of the pages, for others that stand beside them.
func Style() template.CSS { return template.CSS(asset("style.css")) }
