import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Iceberg's REST catalog on the loopback address. Its state is a SQLite file, so it survives a kill.
 *
 * Arguments: port, or 0 for a free one; directory of the database; warehouse.
 */
public class CatalogServer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = Map.of(
                "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
                "uri", "jdbc:sqlite:" + arguments[1] + "/catalog.db",
                "jdbc.schema-version", "V1",
                "warehouse", arguments[2]);
        Catalog catalog =
                CatalogUtil.buildIcebergCatalog("served", properties, new Configuration());
        ServletContextHandler context =
                new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
        context.addServlet(
                new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new InetSocketAddress(
                InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[0])));
        server.setHandler(context);
        server.start();
        System.out.println("serving on port " + server.getURI().getPort());
        server.join();
    }
}
