// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import "testing"

func TestTable_FitsColumns(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"ID", "NAME", "DESCRIPTION"}, {"ep-1234567890", "日本", "a text of twenty-two ch"},
		{"ep-2", "a name of 20 letters", "-"}}
	for columns, want := range map[int]string{
		0: "ID              NAME                   DESCRIPTION\n" +
			"ep-1234567890   日本                   a text of twenty-two ch\n" +
			"ep-2            a name of 20 letters   -\n",
		45: "ID              NAME            DESCRIPTION\n" +
			"ep-1234567890   日本            a text of tw…\n" +
			"ep-2            a name of 20…   -\n",
		20: "ID              NAME       DESCRIP…\n" +
			"ep-1234567890   日本       a text …\n" +
			"ep-2            a name …   -\n",
	} {
		if got := Table(rows, columns); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", columns, got, want)
		}
	}
	if got := Table(nil, 80); got != "" {
		t.Errorf("nothing becomes %q", got)
	}
}
