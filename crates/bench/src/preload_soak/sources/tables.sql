-- 300,000 rows made, indexed, changed, thinned out, read in and out of order, and packed again.
pragma mmap_size = 1073741824;
pragma journal_mode = truncate;
pragma synchronous = off;
pragma cache_size = 200;
create table t (id integer primary key, a integer, b text, c blob);
begin;
with recursive n (i) as (select 1 union all select i + 1 from n where i < 300000)
insert into t select i, (i * 7919) % 1000003, 'row ' || i || ' of some length, so that pages fill', zeroblob(i % 97) from n;
commit;
create index t_a on t (a);
create index t_b on t (b);
update t set b = b || ' changed' where a % 5 = 0;
delete from t where id % 3 = 0;
pragma integrity_check;
select 'rows ' || count(*) || ' ' || sum(id) from t;
select 'by a ' || sum(x.id * (y.a % 10)) from t x join t y on y.a = (x.id * 7919) % 1000003;
select 'text ' || sum(length(b)) || ' ' || max(b) from t indexed by t_b where b > 'row 1';
vacuum;
pragma integrity_check;
select 'packed ' || count(*) || ' ' || sum(length(c)) from t;
