// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// PositionPattern is the regular expression of an ID in a query.
const PositionPattern = `^[0-9A-Za-z_-]{1,64}$`

// paging has the parameters of every list.
var paging = []Field{
	{Name: "before_id", Pattern: PositionPattern,
		Description: "a position in the list: the page begins after it; it need not exist any more"},
	{Name: "limit", Type: Number, Min: 1, Max: account.MaxPageLimit, Default: account.DefaultPageLimit,
		Description: "how many objects a page has at most"},
}

// watching has the parameters of lists that can be watched.
var watching = []Field{
	{Name: "watch", Type: Bool, Default: false,
		Description: "true keeps the answer open and sends each change as a line"},
	{Name: "resource_version",
		Description: "the version from a list's first page, or of a watch's last line; required with watch=true"},
}

var endpointQuery = slices.Concat(paging, []Field{
	{Name: "binding", Description: "only endpoints with one of these bindings: " +
		strings.Join(Bindings(), ", ") + ", with commas between them"},
	{Name: "type", Key: "endpoint_type", Type: Choice, Values: []string{account.TypeAgent, account.TypeCloud},
		Description: "only endpoints of this type"},
	{Name: "url", Description: "only endpoints with this URL, in any spelling"},
	{Name: "owner_cluster", Max: account.MaxUID,
		Description: "only endpoints of objects in the cluster with this uid; not with watch=true"},
}, watching)

var eventQuery = slices.Concat(paging, []Field{
	{Name: "type", Type: Choice, Values: account.AuditTypes(), Description: "only events of this type"},
	{Name: "object_id", Pattern: PositionPattern, Description: "only events about this object"},
}, watching)

var appSessionQuery = append(slices.Clone(paging), []Field{
	{Name: "q", Max: account.MaxSearch, Description: "only what has each of these words: of a user, in the user " +
		"name, e-mail address, name, provider's name, provider_user_id or id; of a session, in these of its user, " +
		"the URL or the IP address; case and accents do not matter"},
	{Name: "provider", Max: account.MaxSearch, Description: "only users, and sessions of users, whose identity " +
		"provider's name has this part; case and accents do not matter"},
	{Name: "user_id", Pattern: PositionPattern, Description: "only the user with this id, or the user's sessions"},
	{Name: "endpoint", Max: account.MaxSearch, Description: "only sessions at endpoints with this part in their URL, " +
		"in any case, or with this id; of users those with such a session, and without ip and country those who have " +
		"ever accessed one"},
	{Name: "ip", Pattern: "^[0-9A-Fa-f:.]{0,45}$", Description: "only sessions that logged in from this IP address, " +
		"or from addresses that begin with this; of users those with one"},
	{Name: "country", Pattern: "^([A-Za-z]{2})?$", Description: "only sessions that logged in from this country, by " +
		"its code of ISO 3166-1; of users those with one"},
}...)

var userQuery = append(slices.Clone(appSessionQuery),
	Field{Name: "sort", Type: Choice, Values: []string{"created_at", "last_active"}, Default: "created_at",
		Description: "the order of users: the newest first, or the most recently active first"},
	Field{Name: "before_active", Type: Time, Description: "with before_id and sort=last_active: the position in the " +
		"list; it is part of next_page_uri"})
